"""The tiny models' tokenizer: a token for each of the world's words, digits one by one, letters for the rest."""

from __future__ import annotations

import string
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# A word, digit or sign with the space before it, or one of white space.
_PIECES = r" ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]|\s"
# Qwen's layout, without the tool calls.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer(texts: list[str]) -> Any:
    """A `PreTrainedTokenizerFast` that has every piece of `texts`; other words are spelt in characters."""
    from transformers import PreTrainedTokenizerFast

    splitter = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    characters = [*string.ascii_letters, *string.digits, *string.punctuation, " ", "\n"]
    words = {piece for text in texts for piece, _ in splitter.pre_tokenize_str(text)}
    pieces = [*SPECIAL, *characters, *sorted(words - set(characters))]
    # `ignore_merges` looks a whole piece up first; without merges the rest falls apart into characters.
    model = models.BPE({piece: i for i, piece in enumerate(pieces)}, [], ignore_merges=True)
    backend = Tokenizer(model)
    backend.pre_tokenizer = splitter
    backend.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        extra_special_tokens=[SPECIAL[1]],
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = CHAT_TEMPLATE
    return made
