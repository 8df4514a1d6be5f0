"""Chat or plain: decided from the model, told in a line, and the end tokens that stop a response."""

import os
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from meml_mel.data.question import Question
from meml_mel.prompts import Prompts
from meml_mel.prompts.format import (
    PromptFormat,
    decide_format,
    end_token_ids,
    flatten,
    is_base_model,
    model_label,
)

SHARED = Path(os.environ.get("MEML_MEL_SHARED", Path(__file__).parents[3] / "shared"))
SYSTEM, USER = {"role": "system", "content": "Be exact."}, {"role": "user", "content": "1 + 1?"}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|im_end|>{% endfor %}"
    "{{ '<assistant>' if add_generation_prompt }}"
)


def tiny(template: str | None = TEMPLATE, bos: bool = False) -> PreTrainedTokenizerFast:
    words = ["<s>", "<|im_end|>", "<|endoftext|>", "<pad>", "[UNK]", "1", "+", "?", "Be", "exact", "."]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if bos:
        from tokenizers.processors import TemplateProcessing

        backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<pad>",
        bos_token="<s>",
        additional_special_tokens=["<|endoftext|>"],
    )
    made.chat_template = template
    return made


@cache
def qwen3():
    folder = SHARED / "tokenizers" / "qwen3"
    if not folder.is_dir():
        pytest.skip(
            f"the real Qwen3 tokenizer is not at {folder}; MEML_MEL_SHARED names the folder that holds it"
        )
    return AutoTokenizer.from_pretrained(folder)


# ---------------------------------------------------------------- the plain layout


def test_the_plain_layout():
    assert flatten([USER]) == "1 + 1?\n\nResponse:\n"
    assert flatten([SYSTEM, USER]) == "Be exact.\n\n1 + 1?\n\nResponse:\n"
    assert flatten([USER, {"role": "assistant", "content": "2"}, USER]) == (
        "1 + 1?\n\nResponse:\n2\n\n1 + 1?\n\nResponse:\n"
    )


# ---------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("name", "chat"),
    [
        ("Qwen/Qwen3-4B-Base", False),
        ("Qwen/Qwen3-4B", True),
        ("Qwen/Qwen2.5-Math-1.5B", False),  # this family's base models carry no suffix
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", True),
        ("Qwen/Qwen1.5-7B-Chat", True),
        ("meta-llama/Llama-3.2-1B-Instruct", True),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", True),
        ("runs/qwen3-4b-base-mel/checkpoint-120", False),
        ("hub/models--Qwen--Qwen3-8B-Base/snapshots/" + "0f" * 20, False),
        ("databases/qwen3-4b", True),
        ("", True),
    ],
)
def test_auto_uses_the_template_unless_the_name_says_base(name, chat):
    assert decide_format(tiny(), model_name=name or None).chat == chat
    assert is_base_model(name) == (not chat)


def test_the_label_is_the_models_own_name():
    assert model_label("Qwen/Qwen3-4B-Base") == "Qwen3-4B-Base"
    assert model_label("a/models--Qwen--Qwen3-8B-Base/snapshots/" + "ab" * 20) == "Qwen3-8B-Base"
    assert model_label("runs/mine/checkpoint-5/") == "mine"
    assert model_label("") == model_label("./") == ""


def test_without_a_template_it_is_plain_whatever_the_name():
    assert not decide_format(tiny(template=None), model_name="Qwen/Qwen3-4B").chat


def test_a_setting_overrides_the_name():
    assert decide_format(tiny(), "chat", "Qwen/Qwen3-4B-Base").chat
    assert not decide_format(tiny(), "plain", "Qwen/Qwen3-4B").chat


def test_bad_settings_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match="use auto or plain"):
        decide_format(tiny(template=None), "chat", "some/model")
    with pytest.raises(ValueError, match="auto, chat, plain"):
        decide_format(tiny(), "template")


@pytest.mark.parametrize(
    ("setting", "name", "parts"),
    [
        ("auto", "Qwen/Qwen3-4B-Base", ("plain text", "Qwen3-4B-Base is a base model")),
        ("auto", "Qwen/Qwen3-4B", ("chat template", "auto", "Qwen3-4B")),
        ("plain", "Qwen/Qwen3-4B", ("plain text", "set to plain")),
    ],
)
def test_the_decision_is_told_in_one_line(setting, name, parts):
    told = decide_format(tiny(), setting, name).describe()
    assert "\n" not in told and all(part in told for part in (*parts, "<|im_end|> (1)", "<|endoftext|> (2)"))


# ---------------------------------------------------------------- text and ids


def test_chat_text_comes_from_the_template_and_plain_text_from_the_layout():
    assert PromptFormat(tiny(), chat=True).text([SYSTEM, USER]) == (
        "<system>Be exact.<|im_end|><user>1 + 1?<|im_end|><assistant>"
    )
    assert PromptFormat(tiny(), chat=False).text([SYSTEM, USER]) == flatten([SYSTEM, USER])


def test_template_arguments_reach_the_template():
    made = tiny(template="{{ messages[0].content }}{{ 'T' if thinking else 'N' }}")
    assert PromptFormat(made, True, template_kwargs={"thinking": True}).text([USER]) == "1 + 1?T"
    assert decide_format(made, "chat", template_kwargs={"thinking": False}).text([USER]) == "1 + 1?N"


def test_only_plain_text_gets_the_tokenizers_own_bos():
    """A template that writes <s> itself must not get a second one; plain text has no one else to write it."""
    made = tiny(template="<s>{{ messages[0].content }}", bos=True)
    assert PromptFormat(made, chat=True).ids([USER])[:2] == (0, 5)
    assert PromptFormat(made, chat=False).ids([USER])[:2] == (0, 5)


def test_end_tokens_of_tokenizer_and_configs_come_together():
    made = tiny()
    assert end_token_ids(made) == (1, 2)
    assert end_token_ids(made, SimpleNamespace(eos_token_id=2)) == (1, 2)
    assert end_token_ids(made, SimpleNamespace(eos_token_id=[9, 1]), SimpleNamespace(eos_token_id=None)) == (
        1,
        9,
        2,
    )


def test_without_any_end_token_it_is_an_error():
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    with pytest.raises(ValueError, match="eos_token"):
        end_token_ids(PreTrainedTokenizerFast(tokenizer_object=backend))


# ---------------------------------------------------------------- the real Qwen3 tokenizer


def test_qwen3_both_end_tokens():
    """The tokenizer's eos is <|im_end|>, the base models' config says <|endoftext|>: a response may end with either."""
    tokenizer = qwen3()
    ids = {tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")}
    assert ids == {151645, 151643}
    assert set(end_token_ids(tokenizer)) == ids
    assert end_token_ids(tokenizer, SimpleNamespace(eos_token_id=151643))[0] == 151645


def test_qwen3_chat_ids_equal_the_templates_own():
    tokenizer = qwen3()
    messages = Prompts.load().solve(Question("q", "What is {{ 1 }}?", "1"), "careful")
    expected = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=True)[
        "input_ids"
    ]
    made = decide_format(tokenizer, model_name="Qwen/Qwen3-4B")
    assert made.chat and list(made.ids(messages)) == expected
    assert made.text(messages).startswith(
        "<|im_start|>system\nYou are careful.<|im_end|>\n<|im_start|>user\nWhat is {{ 1 }}?"
    )
    assert made.text(messages).endswith("<|im_start|>assistant\n")


def test_qwen3_base_is_plain_without_special_tokens():
    tokenizer = qwen3()
    made = decide_format(tokenizer, model_name="Qwen/Qwen3-4B-Base")
    messages = Prompts.load().solve(Question("q", "What is 1 + 1?", "2"))
    ids = made.ids(messages)
    assert not made.chat and not set(ids) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(ids) == flatten(messages)


def test_qwen3_can_be_told_not_to_think():
    made = decide_format(qwen3(), "chat", template_kwargs={"enable_thinking": False})
    assert made.text([USER]).endswith("<think>\n\n</think>\n\n")


def test_an_analysis_prompt_without_its_attempts_is_short():
    """Its instruction is paid for with every pair: it stays under 600 tokens."""
    messages = Prompts.load().analyse(Question("q", "", ""), "", "")
    assert len(PromptFormat(qwen3(), chat=True).ids(messages)) < 600
