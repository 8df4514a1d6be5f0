"""From messages to what the model reads: its chat template, or plain text for base models.

Plain layout, each block followed by one empty line, with the system text first where there is one:

    <system text>

    <user text>

    Response:
    <what the model writes starts on this line>

An assistant message in the middle stands after its own `Response:` line. The text ends with the line break,
so that the first sampled token is no continuation of a half-written word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # at run time it would load torch
    from ..rlvr.rollouts import Message

Setting = Literal["auto", "chat", "plain"]

_CUE = "Response:\n"
# Both are ends on Qwen: config and tokenizer name different ones (Qwen3 #927); the last two are Llama 3's.
_END_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>")


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """How prompts are written for one model: `chat` says whether its chat template is used.

    `template_kwargs` are handed to the chat template (`enable_thinking` for Qwen3, for one).
    """

    tokenizer: Any
    chat: bool
    reason: str = "as set"
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def text(self, messages: Sequence[Message]) -> str:
        """The whole prompt as text, ready for the model to go on."""
        if not self.chat:
            return flatten(messages)
        return self.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=False, **self.template_kwargs
        )

    def ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt's token ids. A chat template writes its own special tokens; plain text gets the
        tokenizer's (a leading <bos> where it has one)."""
        return tuple(self.tokenizer(self.text(messages), add_special_tokens=not self.chat)["input_ids"])

    def describe(self) -> str:
        """One line on the decision, for the console and the run's record."""
        ends = ", ".join(
            f"{self.tokenizer.convert_ids_to_tokens(i)} ({i})" for i in end_token_ids(self.tokenizer)
        )
        kind = "chat template" if self.chat else "plain text"
        return f"prompt format: {kind} ({self.reason}); end tokens: {ends}"


def flatten(messages: Sequence[Message]) -> str:
    """Messages as plain text for a model without a chat template; this module's docstring has the layout."""
    blocks = [(_CUE if m["role"] == "assistant" else "") + m["content"] for m in messages]
    return "\n\n".join([*blocks, _CUE])


def decide_format(
    tokenizer: Any,
    setting: Setting = "auto",
    model_name: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> PromptFormat:
    """Chat or plain. `auto`: the chat template where there is one, unless the model is a base model.

    Base models often ship a template they were not trained on (Qwen3-*-Base); under it they run on into
    further questions (lighteval #867: 0.49 against 0.72). `model_name` defaults to where the tokenizer came
    from. Raises ValueError for `chat` without a template.
    """
    name = model_name or getattr(tokenizer, "name_or_path", "") or ""
    label = model_label(name) or "this model"
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if setting not in ("auto", "chat", "plain"):
        raise ValueError(f"prompt format {setting!r} is not one of auto, chat, plain")
    if setting == "chat" and not has_template:
        raise ValueError(
            f"prompt format 'chat' but the tokenizer of {label} has no chat template: use auto or plain"
        )
    if setting != "auto":
        chat, reason = setting == "chat", f"set to {setting}"
    elif not has_template:
        chat, reason = False, f"auto: the tokenizer of {label} has no chat template"
    elif is_base_model(name):
        chat, reason = False, f"auto: {label} is a base model by its name, its chat template is left unused"
    else:
        chat, reason = True, f"auto: the tokenizer of {label} has a chat template"
    return PromptFormat(tokenizer, chat, reason, dict(template_kwargs or {}))


def model_label(name: str) -> str:
    """The model's own name in a Hub id, a local folder, a cache snapshot or a checkpoint folder."""
    for part in reversed(re.split(r"[/\\]+", name.rstrip("/\\"))):
        if not re.fullmatch(r"checkpoint-\d+|[0-9a-f]{40}|snapshots|final|\.*", part):
            return part.split("--")[-1]
    return ""


def is_base_model(name: str) -> bool:
    """Whether a name says base model: the word `base` in it, or Qwen 1.5 to 2.5 with neither `Instruct` nor
    `Chat`, which is how those families name their base models (Qwen2.5-Math-1.5B)."""
    label = model_label(name).lower()
    words = set(re.split(r"[-_.\s]+", label))
    if words & {"instruct", "chat", "it"}:
        return False
    return "base" in words or bool(re.match(r"qwen(1\.5|2|2\.5)-", label))


def end_token_ids(tokenizer: Any, *configs: Any) -> tuple[int, ...]:
    """Every id that ends a response: the tokenizer's, those of the model's or generation config, and the end
    tokens of the Qwen and Llama families that the tokenizer has as special tokens.

    Raises ValueError where there is none: generation would never stop.
    """
    found: list[int] = []
    for source in (tokenizer, *configs):
        value = getattr(source, "eos_token_id", None)
        found += [] if value is None else [value] if isinstance(value, int) else list(value)
    special = {str(token): i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    found += [special[token] for token in _END_TOKENS if token in special]
    if not found:
        raise ValueError("neither the tokenizer nor the configs name an end token: set tokenizer.eos_token")
    return tuple(dict.fromkeys(int(i) for i in found))
