"""Stage 1: rows, tokens, what is refused before a model loads, and one run from command line to final model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from meml_mel.config import ConfigError, load_config
from meml_mel.config.run import from_mapping
from meml_mel.data.source import DataError, DataSource
from meml_mel.prompts.format import PromptFormat
from meml_mel.train import sft
from meml_mel.train.sft_rows import IGNORED, TextRow, gather, read_extra_rows, tokenise, tokenise_all
from tests import tiny

USER = ({"role": "user", "content": "1+1=?"},)


def jsonl(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def question(i: int, **columns) -> dict:
    return {"id": f"q{i}", "problem": f"{i}+{i}=?", "answer": str(2 * i), **columns}


def config_mapping(tmp_path: Path, **changes) -> dict:
    """Two experts on four questions: one with the ground truth, one with a column that is wrong once."""
    rows = [
        question(i, solution=f"twice {i} is {2 * i}", other={"text": f"{i} and {i}", "ok": i != 2})
        for i in range(4)
    ]
    return {
        "model_name_or_path": "nowhere/at-all",
        "data": {"path": jsonl(tmp_path / "questions.jsonl", rows)},
        "experts": [
            {"name": "truth", "solutions": {"ground_truth": True, "ending": " so \\boxed{{answer}}"}},
            {"name": "other", "solutions": {"column": "other.text", "correct_column": "other.ok"}},
        ],
        "output_dir": str(tmp_path / "run"),
        "use_cpu": True,
        "bf16": False,
        **changes,
    }


# -- rows ----------------------------------------------------------------------------------------------------


def test_a_row_per_question_and_expert_whose_solution_is_right(tmp_path):
    gathered = gather(from_mapping(config_mapping(tmp_path), "sft"))
    assert [(r.id, r.origin) for r in gathered.rows] == [
        ("q0", "truth"), ("q0", "other"), ("q1", "truth"), ("q1", "other"),
        ("q2", "truth"), ("q3", "truth"), ("q3", "other"),
    ]  # fmt: skip
    first, second = gathered.rows[:2]
    assert first.completion == "twice 0 is 0 so \\boxed{0}"
    assert second.completion == "0 and 0"
    assert first.prompt[0] == {"role": "system", "content": "You are truth."}
    assert first.prompt[1]["content"].startswith("0+0=?")
    assert gathered.experts.dropped["other"] == {"wrong": 1}


def test_keep_only_correct_false_keeps_the_wrong_solution(tmp_path):
    config = from_mapping(config_mapping(tmp_path, sft={"keep_only_correct": False}), "sft")
    assert len(gather(config).rows) == 8


def test_solutions_of_which_the_source_says_nothing_are_graded(tmp_path):
    mapping = config_mapping(tmp_path)
    del mapping["experts"][1]["solutions"]["correct_column"]
    asked = []

    class Verdict:
        verdict = "right"

    def grade(gold, answer, kind):
        asked.append((gold, answer, kind))
        return Verdict

    assert len(gather(from_mapping(mapping, "sft"), grade).rows) == 8
    assert ("4", "2 and 2", "math") in asked and len(asked) == 4


def test_solutions_from_a_file_of_their_own_are_matched_and_hashed(tmp_path):
    mapping = config_mapping(tmp_path)
    traces = jsonl(tmp_path / "traces.jsonl", [question(1, trace="one and one", good=True)])
    mapping["experts"][1]["solutions"] = {"path": traces, "column": "trace", "correct_column": "good"}
    gathered = gather(from_mapping(mapping, "sft"))
    assert [r.completion for r in gathered.rows if r.origin == "other"] == ["one and one"]
    assert len(gathered.data[traces]["sha256"]) == 64


def test_extra_rows_stand_beside_the_experts(tmp_path):
    extra = jsonl(tmp_path / "extra.jsonl", [{"id": "a", "prompt": list(USER), "completion": "2"}])
    config = from_mapping(config_mapping(tmp_path, sft={"extra_rows": [{"path": extra}]}), "sft")
    gathered = gather(config)
    assert gathered.rows[-1] == TextRow(USER, "2", "extra.jsonl", "a")
    assert gathered.data[extra]["rows"] == 1 and len(gathered.data[extra]["sha256"]) == 64


def test_extra_rows_alone_need_no_experts(tmp_path):
    extra = jsonl(
        tmp_path / "extra.jsonl", [{"prompt": "1+1=?", "completion": [{"role": "assistant", "content": "2"}]}]
    )
    config = from_mapping(
        {"model_name_or_path": "x", "sft": {"extra_rows": [{"path": extra}]}, "output_dir": "run"}, "sft"
    )
    assert gather(config).rows == (TextRow(USER, "2", "extra.jsonl", ""),)


@pytest.mark.parametrize(
    "row, said",
    [
        ({"prompt": list(USER)}, "`completion` must be text"),
        ({"prompt": list(USER), "completion": " "}, "`completion` must be text"),
        ({"prompt": [], "completion": "2"}, "`prompt` must be text or a list of messages"),
        ({"prompt": [{"role": "teacher", "content": "x"}], "completion": "2"}, "is no message"),
        (
            {"prompt": [*USER, {"role": "assistant", "content": "x"}], "completion": "2"},
            "ends with the assistant's",
        ),
    ],
)
def test_a_malformed_extra_row_is_named(tmp_path, row, said):
    path = jsonl(tmp_path / "extra.jsonl", [{"prompt": list(USER), "completion": "2"}, row])
    with pytest.raises(DataError, match="row 1") as caught:
        read_extra_rows(DataSource(path))
    assert said in str(caught.value)


# -- tokens --------------------------------------------------------------------------------------------------


def test_only_the_completion_and_its_end_token_count():
    tokenizer = tiny.tokenizer()
    tokens = tokenise(TextRow(USER, "it is 2", "e"), PromptFormat(tokenizer, chat=True))
    assert tokenizer.decode(tokens["input_ids"]) == "<u>1+1=?<end><a>it is 2<end>"
    trained = [label for label in tokens["labels"] if label != IGNORED]
    assert tokenizer.decode(trained) == "it is 2<end>"
    assert tokens["labels"][: -len(trained)] == [IGNORED] * len(tokenizer("<u>1+1=?<end><a>")["input_ids"])


def test_plain_text_has_the_same_completion_and_end_token():
    tokenizer = tiny.tokenizer()
    tokens = tokenise(TextRow(USER, "it is 2", "e"), PromptFormat(tokenizer, chat=False))
    end = [tokenizer.eos_token_id]
    assert (
        tokens["input_ids"]
        == tokenizer("1+1=?\n\nResponse:\n")["input_ids"] + tokenizer("it is 2")["input_ids"] + end
    )
    assert tokenizer.decode([t for t in tokens["labels"] if t != IGNORED]) == "it is 2<end>"


def test_rows_over_max_length_are_counted_by_origin_or_refused():
    format = PromptFormat(tiny.tokenizer(), chat=True)
    rows = [
        TextRow(USER, "2", "a", "q0"),
        TextRow(USER, "it is 2, surely", "a", "q1"),
        TextRow(USER, "2", "b"),
    ]
    length = len(tokenise(rows[0], format)["input_ids"])
    tokenised = tokenise_all(rows, format, length)
    assert (tokenised.kept, tokenised.too_long, tokenised.longest) == (
        {"a": 1, "b": 1},
        {"a": 1, "b": 0},
        length,
    )
    with pytest.raises(ConfigError, match=rf"row 'q1' of a has {length + 14} tokens, max_length is {length}"):
        tokenise_all(rows, format, length, refuse_too_long=True)
    with pytest.raises(ConfigError, match="all 1 rows of a are longer"):
        tokenise_all(rows[1:], format, length)


# -- refused before a model loads ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda m: m["experts"][1].pop("solutions"), "expert 'other' has no solutions column"),
        (lambda m: m["experts"][1]["solutions"].update(column="other.txt"), "other.txt"),
        (lambda m: m.update(experts=[]), "the SFT stage has no experts"),
        (lambda m: m["data"].update(path="no/such/file.jsonl"), "no/such/file.jsonl"),
        (lambda m: m.pop("output_dir"), "output_dir must be given"),
    ],
)
def test_bad_input_fails_before_the_model_is_looked_for(tmp_path, change, said):
    mapping = config_mapping(tmp_path)
    change(mapping)
    with pytest.raises(ValueError) as caught:
        sft.train(from_mapping(mapping, "sft"))
    assert said in str(caught.value)
    assert "nowhere" not in str(caught.value)


def test_a_local_model_that_is_not_there_is_said_to_be_none(tmp_path):
    mapping = config_mapping(tmp_path, model_name_or_path="./no/model")
    with pytest.raises(ConfigError, match="is no folder here"):
        sft.train(from_mapping(mapping, "sft"))


def test_mistakes_on_the_command_line_end_in_status_2(capsys):
    assert sft.main([]) == 2
    assert "--config is missing" in capsys.readouterr().err


# -- a run ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One run of four steps from the command line."""
    folder = tmp_path_factory.mktemp("sft")
    model, tokenizer = tiny.model(), tiny.tokenizer()
    model.generation_config.eos_token_id = 1  # <eos>; the tokenizer's own end is <end>, 2
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    mapping = config_mapping(
        folder,
        model_name_or_path=str(folder / "model"),
        max_steps=4,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        save_steps=2,
        logging_steps=3,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    (folder / "sft.yaml").write_text(json.dumps(mapping))
    argv = ["--config", str(folder / "sft.yaml"), "--seed", "7"]
    assert sft.main(argv) == 0
    return folder, argv


def test_the_final_folder_loads_and_says_how_to_stop_and_sample(trained):
    folder, _ = trained
    final = folder / "run" / "final"
    tokenizer = AutoTokenizer.from_pretrained(final)
    generation = GenerationConfig.from_pretrained(final)
    assert set(generation.eos_token_id) == {1, 2}  # the model's own two ends, <eos> and <end>
    assert generation.do_sample is True and generation.pad_token_id == tokenizer.pad_token_id
    changed = AutoModelForCausalLM.from_pretrained(final).state_dict()
    before = AutoModelForCausalLM.from_pretrained(folder / "model").state_dict()
    assert any(not torch.equal(changed[name], before[name]) for name in before)
    assert not (final / "training_args.bin").exists()


def test_the_run_directory_tells_what_was_run(trained):
    folder, argv = trained
    run = json.loads((folder / "run" / "run.json").read_text())
    assert run["command"].endswith(f"meml_mel.train.sft --config {argv[1]} --seed 7")
    assert run["seed"] == 7 and run["versions"]["trl"].startswith("1.")
    assert run["rows"] == {"kept": {"truth": 4, "other": 3}, "too_long": {"truth": 0, "other": 0}}
    facts = run["data"][str(folder / "questions.jsonl")]
    assert facts["questions"] == 4 and len(facts["content_hash"]) == 64
    again = load_config(folder / "run" / "config.resolved.yaml", stage="sft")
    assert again.digest() == run["config_digest"]
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [1, 2, 3, 4]  # whatever logging_steps is


def test_the_loss_is_the_token_mean_over_the_whole_step(trained):
    """7 rows, 8 drawn in four micro-batches of 2: step 1 holds four of them, by TRL's own shuffle."""
    folder, _ = trained
    config = load_config(folder / "run" / "config.resolved.yaml", stage="sft")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    rows = tokenise_all(gather(config).rows, PromptFormat(tokenizer, True), None).rows
    totals = []
    for row in rows:
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
        with torch.no_grad():
            logp = model(ids).logits[0, :-1].double().log_softmax(-1)
        counted = labels[1:] != IGNORED
        totals.append(
            (-logp[counted].gather(1, labels[1:][counted][:, None]).sum().item(), int(counted.sum()))
        )
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    from itertools import combinations

    means = [sum(n for n, _ in four) / sum(c for _, c in four) for four in combinations(totals, 4)]
    assert min(abs(mean - metrics[0]["loss"]) for mean in means) < 1e-4


def test_resume_from_the_newest_complete_checkpoint_ends_in_the_same_weights(trained):
    folder, argv = trained
    run = folder / "run"
    weights = AutoModelForCausalLM.from_pretrained(run / "final").state_dict()
    metrics = (run / "metrics.jsonl").read_text()
    (run / "checkpoint-4" / "complete.json").unlink()  # as a kill while saving leaves it
    assert sft.main([*argv, "--resume_from_checkpoint", "true"]) == 0
    again = AutoModelForCausalLM.from_pretrained(run / "final").state_dict()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    without_time = [{k: v for k, v in json.loads(line).items()} for line in metrics.splitlines()]
    assert [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] == without_time
    assert json.loads((run / "run.json").read_text())["resumed"][0]["from_step"] == 2


def test_a_second_run_in_the_same_folder_is_refused(trained, capsys):
    assert sft.main(trained[1]) == 2
    assert "holds a run already" in capsys.readouterr().err


def test_resume_refuses_another_config(trained, capsys):
    _, argv = trained
    assert sft.main([*argv, "--resume_from_checkpoint", "true", "--learning_rate", "0.5"]) == 2
    assert "resolved config" in capsys.readouterr().err


def test_lora_saves_the_adapter_with_tokenizer_and_generation_config(trained):
    pytest.importorskip("peft")
    folder, argv = trained
    out = folder / "lora"
    overrides = [
        "--output_dir",
        str(out),
        "--use_peft",
        "true",
        "--max_steps",
        "1",
        "--lora_target_modules",
        "q_proj",
        "v_proj",
    ]
    assert sft.main([*argv, *overrides]) == 0
    names = {p.name for p in (out / "final").iterdir()}
    assert {"adapter_model.safetensors", "tokenizer.json", "generation_config.json"} <= names
    assert "model.safetensors" not in names


def test_dry_run_counts_rows_and_steps_without_a_model(trained, capsys):
    _, argv = trained
    assert sft.main([*argv, "--model_name_or_path", "nowhere/at-all", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "rows in the data" in told and " 7" in told


# -- against TRL ---------------------------------------------------------------------------------------------


def test_ids_equal_trls_own_preparation_where_the_template_writes_nothing_after_the_end_token(tmp_path):
    """The tiny template ends a message with its end token, so TRL's prompt/completion rows must be ours."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    tokenizer = tiny.tokenizer()
    rows = [TextRow(USER, "it is 2", "e"), TextRow(USER, "two", "e")]
    dataset = Dataset.from_list(
        [
            {"prompt": list(r.prompt), "completion": [{"role": "assistant", "content": r.completion}]}
            for r in rows
        ]
    )
    args = SFTConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False
    )
    trainer = SFTTrainer(tiny.model(), args, train_dataset=dataset, processing_class=tokenizer)
    ours = [tokenise(row, PromptFormat(tokenizer, chat=True)) for row in rows]
    theirs = [{key: list(row[key]) for key in ("input_ids", "labels")} for row in trainer.train_dataset]
    assert theirs == ours
