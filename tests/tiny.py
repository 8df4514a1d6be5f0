"""A tiny world for trainer tests: a character tokenizer with a chat template and a Qwen3-architecture model."""

from __future__ import annotations

import string

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from meml_mel.data.question import Question
from meml_mel.grading.verdict import Grade
from meml_mel.rlvr.rows import Row

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'][0] }}>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
SPECIAL = ["<pad>", "<eos>", "<end>", "<s>", "<u>", "<a>"]


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a printable character; `<end>` ends a turn and is the tokenizer's eos."""
    characters = SPECIAL + list(string.printable)
    backend = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token=" "))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<end>", additional_special_tokens=SPECIAL[1:]
    )
    made.chat_template = TEMPLATE
    return made


def model(seed: int = 0, vocab: int | None = None, layers: int = 2, hidden: int = 32) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab or len(tokenizer()),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
        use_cache=True,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
    )
    made = Qwen3ForCausalLM(config)
    made.generation_config.eos_token_id = [2, 1]
    made.generation_config.pad_token_id = 0
    return made


def questions(count: int) -> list[Question]:
    """Ragged prompts on purpose: their lengths differ."""
    return [
        Question(
            id=f"q{i}",
            problem="x" * (i % 4) + f"{i}+{i}=?",
            answer=str(2 * i),
            solution=f"twice {i} is {2 * i}",
        )
        for i in range(count)
    ]


def rows(count: int, experts: tuple[str, ...] = ("",)) -> list[Row]:
    made = []
    for question in questions(count):
        for expert in experts:
            system = [{"role": "system", "content": expert}] if expert else []
            made.append(Row(question, expert, (*system, {"role": "user", "content": question.problem})))
    return made


def grade_by_length(items) -> list[Grade]:
    """A reward that a random model earns about half the time: right iff the text's length is even."""
    return [
        Grade("wrong", "truncated")
        if truncated and len(text) % 4 == 1
        else Grade("right", None, text)
        if len(text) % 2 == 0
        else Grade("wrong", "different", text)
        for _, text, truncated in items
    ]


def exact(model: Qwen3ForCausalLM) -> Qwen3ForCausalLM:
    """The same model in float64 throughout: transformers computes norms and rotary angles in float32."""
    model = model.double()

    def norm(self, hidden):
        return (
            self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        )

    def rotary(self, x, position_ids):
        angles = position_ids[..., None].double() * self.exact_inv_freq
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    for module in model.modules():
        if type(module).__name__ == "Qwen3RMSNorm":
            module.forward = norm.__get__(module)
        if type(module).__name__ == "Qwen3RotaryEmbedding":
            theta, size = 10000.0, model.config.head_dim
            module.exact_inv_freq = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
            module.forward = rotary.__get__(module)
    return model
