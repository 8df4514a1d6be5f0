"""Files, folders, ranges and cuts; and the errors, each with the value, the limit and the way out."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_helpers import load, write_jsonl

from meml_mel.data.load import DataError, DataSource, load_questions

ROWS = [{"id": f"n{i}", "problem": f"{i}+{i}?", "answer": str(2 * i)} for i in range(6)]


@pytest.fixture
def numbers(tmp_path):
    return write_jsonl(tmp_path / "numbers.jsonl", ROWS)


def ids(loaded):
    return [q.id for q in loaded.questions]


def error(path, **fields):
    with pytest.raises(DataError) as caught:
        load(path, **fields)
    return str(caught.value)


def test_the_same_questions_from_every_format(tmp_path, numbers):
    (tmp_path / "list.json").write_text(json.dumps(ROWS, indent=1))
    (tmp_path / "holder.json").write_text(json.dumps({"version": 1, "data": ROWS}))
    (tmp_path / "lines.json").write_text("".join(json.dumps(r) + "\n\n" for r in ROWS))
    with gzip.open(tmp_path / "small.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(r) + "\n" for r in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "table.parquet")
    expected = load(numbers)
    assert ids(expected) == ["n0", "n1", "n2", "n3", "n4", "n5"]
    for name in ("list.json", "holder.json", "lines.json", "small.jsonl.gz", "table.parquet"):
        loaded = load(tmp_path / name)
        assert loaded.report.content_hash == expected.report.content_hash, name


def test_json_values_are_read_exactly_as_written(tmp_path):
    """The Arrow reader would make a time stamp of the date and floats of the column of mixed numbers."""
    for name, answers in {"dates": ["2020-01-01", "2021-05-06"], "numbers": [72, 2.5, 10**30]}.items():
        path = write_jsonl(tmp_path / f"{name}.jsonl", [{"problem": f"p{a}", "answer": a} for a in answers])
        assert [q.answer for q in load(path).questions] == [str(a) for a in answers]


def test_a_single_verl_row_in_a_json_file_stays_one_row(tmp_path):
    row = {"prompt": [{"role": "user", "content": "1+1?"}], "reward_model": {"ground_truth": "2"}}
    (tmp_path / "one.json").write_text(json.dumps(row))
    assert load(tmp_path / "one.json").questions[0].problem == "1+1?"


def test_a_folder_has_the_splits_that_its_file_names_say(tmp_path):
    write_jsonl(tmp_path / "train.jsonl", ROWS[:4])
    write_jsonl(tmp_path / "test.jsonl", ROWS[4:])
    assert ids(load(tmp_path)) == ["n0", "n1", "n2", "n3"]
    assert ids(load(tmp_path, split="test")) == ["n4", "n5"]
    assert ids(load(tmp_path, data_files="test.jsonl")) == ["n4", "n5"]
    assert "; did you mean 'test'? Splits: train, test; start and stop" in error(tmp_path, split="tset")


def test_shards_of_a_folder_are_read_in_order(tmp_path):
    for i in (2, 0, 1):
        pq.write_table(
            pa.Table.from_pylist(ROWS[2 * i : 2 * i + 2]), tmp_path / f"train-0000{i}-of-00003.parquet"
        )
    assert ids(load(tmp_path)) == ["n0", "n1", "n2", "n3", "n4", "n5"]


def test_other_formats_in_a_folder_go_through_the_datasets_library(tmp_path, monkeypatch):
    (tmp_path / "train.csv").write_text("problem,answer\n1+1?,2\n2+2?,4\n")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    assert [q.answer for q in load(tmp_path).questions] == ["2", "4"]


def test_start_and_stop_count_rows_before_cleaning(numbers, tmp_path):
    assert ids(load(numbers, start=2, stop=4)) == ["n2", "n3"]
    path = write_jsonl(tmp_path / "twice.jsonl", [ROWS[0], ROWS[0], ROWS[1]])
    assert ids(load(path, stop=2)) == ["n0"]
    assert "has no row 6 in split 'train': lower data.start" in error(numbers, start=6)


def test_max_questions_counts_questions_and_stops_reading(tmp_path):
    path = write_jsonl(tmp_path / "twice.jsonl", [ROWS[0], ROWS[0], ROWS[1], ROWS[2]])
    loaded = load(path, max_questions=2)
    assert ids(loaded) == ["n0", "n1"] and loaded.report.rows == 3


def test_an_ids_file_keeps_its_questions_in_its_order(numbers, tmp_path):
    wanted = tmp_path / "ids.txt"
    wanted.write_text("n4\nn1\n\nn0\n")
    loaded = load(numbers, ids_file=str(wanted))
    assert ids(loaded) == ["n4", "n1", "n0"] and loaded.report.left_out == 3
    assert ids(load(numbers, ids_file=str(wanted), max_questions=2)) == ["n4", "n1"]


def test_ids_that_are_not_there_are_named(numbers, tmp_path):
    wanted = tmp_path / "ids.txt"
    wanted.write_text("n4\nzz\nyy\n")
    message = error(numbers, ids_file=str(wanted))
    assert "2 of 3 ids are not in the data: zz, yy. The data has ids like 'n0'." in message
    wanted.write_text("n4\nn4\n")
    assert "names 1 ids more than once (n4): keep one line each" in error(numbers, ids_file=str(wanted))
    missing = error(numbers, ids_file=str(tmp_path / "none.txt"))
    assert "does not exist: write one question id a line" in missing


def test_the_grader_is_asked_about_golds_by_default(tmp_path):
    rows = [{"problem": "a", "answer": "12"}, {"problem": "b", "answer": r"\begin{nonsense}"}]
    loaded = load_questions(DataSource(write_jsonl(tmp_path / "x.jsonl", rows)))
    assert [q.answer for q in loaded.questions] == ["12"]
    assert [r.reason for r in loaded.report.rejected] == ["ungradable math answer"]


def test_a_fixed_kind_holds_for_every_question(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"problem": "Which? (A) 1 (B) 2", "answer": "(b)"}])
    question = load(path, kind="choice").questions[0]
    assert (question.kind, question.answer) == ("choice", "B")


def test_the_description_names_counts_and_examples(tmp_path):
    rows = [
        {"id": "a", "problem": "1+1?", "answer": "2"},
        {"id": "b", "problem": " 1+1? ", "answer": "3"},
        {"id": "c", "problem": "2+2?", "answer": ""},
    ]
    text = load(write_jsonl(tmp_path / "x.jsonl", rows), licence="MIT").report.description()
    assert "x.jsonl, split train: 3 rows, 1 questions (1 duplicates removed, 1 rejected, 0 left out)" in text
    assert "rejected, empty answer: 1, e.g. c ('')" in text
    assert "same question, different answers (first kept): 1, e.g. a: 2 | 3" in text


# Errors


def test_a_missing_file_names_its_neighbour(numbers):
    assert "numbers.json' does not exist; did you mean 'numbers.jsonl'?" in error(numbers.removesuffix("l"))
    assert "nor does its folder" in error("./no/such/folder/x.jsonl")


def test_a_folder_without_data_says_what_it_holds(tmp_path):
    assert "has no data files (it holds: nothing)" in error(tmp_path)
    (tmp_path / "notes.md").write_text("hi")
    assert "(it holds: notes.md): put JSONL, JSON or Parquet files there" in error(tmp_path)
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    assert "matching data_files 'val.jsonl'" in error(tmp_path, data_files="val.jsonl")


def test_an_unreadable_ending_says_what_can_be_read(tmp_path):
    (tmp_path / "x.xlsx").write_text("hi")
    assert "the ending '.xlsx' is not one that can be read (.jsonl, .ndjson, .json, .parquet" in error(
        tmp_path / "x.xlsx"
    )


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"problem": "1", "answer": "1"}\n{"problem": oops}\n')
    assert "x.jsonl line 2 is not JSON" in error(tmp_path / "x.jsonl")
    (tmp_path / "y.jsonl").write_text('{"problem": oops}\n')
    assert "y.jsonl line 1 is not JSON" in error(tmp_path / "y.jsonl")
    (tmp_path / "z.jsonl").write_bytes(b'{"problem": "\xff"}\n')
    assert "not UTF-8" in error(tmp_path / "z.jsonl")
    (tmp_path / "w.parquet").write_text("not parquet")
    assert "cannot be read as Parquet" in error(tmp_path / "w.parquet")


def test_an_unknown_mapping_names_the_nearest():
    with pytest.raises(
        DataError, match=r"mapping 'gms8k' is not built in; did you mean 'gsm8k'\? Built in: dapo_math_17k"
    ):
        DataSource("x", mapping="gms8k")
    with pytest.raises(DataError, match=r"unknown field 'anwser'; did you mean 'answer'\?"):
        DataSource("x", mapping={"problem": "q", "anwser": "a"})
    with pytest.raises(DataError, match="mapping lacks answer: add answer: <column>"):
        DataSource("x", mapping={"problem": "q"})
    with pytest.raises(
        DataError, match="mapping 'mathqa' makes questions of kind 'choice', and kind is 'math'"
    ):
        DataSource("x", mapping="mathqa", kind="math")


def test_a_missing_column_names_those_that_exist_and_how_to_map(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", [{"text": "1+1?", "reply": "2"}])
    message = error(path)
    assert "no column for 'problem' (no mapping is given and none could be guessed" in message
    assert (
        "The rows have: text, reply. Map the columns: mapping: {problem: <column>, answer: <column>}"
        in message
    )
    assert "no column for 'answer' (mapping problem: text, answer: gold; looked for gold)" in error(
        path, mapping={"problem": "text", "answer": "gold"}
    )
    assert "no column for 'problem' (mapping gsm8k; looked for question, problem)" in error(
        path, mapping="gsm8k"
    )


def test_a_row_that_lacks_a_column_later_is_rejected_not_fatal(tmp_path):
    rows = [{"problem": "1+1?", "answer": "2"}, {"problem": "2+2?"}]
    (rejected,) = load(write_jsonl(tmp_path / "x.jsonl", rows)).report.rejected
    assert rejected.reason == "no answer column"


def test_nothing_read_and_nothing_left(tmp_path):
    (tmp_path / "x.jsonl").write_text("\n")
    assert "has no rows in split 'train'" in error(tmp_path / "x.jsonl")
    path = write_jsonl(tmp_path / "y.jsonl", [{"problem": "1+1?", "answer": None}])
    assert "none of 1 rows is left as a question" in error(path) and "empty answer: 1" in error(path)


def test_settings_that_do_not_fit_a_local_file(numbers):
    assert "a revision belongs to a Hub id" in error(numbers, revision="main")
    assert "a single file has one split, 'train'" in error(numbers, split="test")
    assert "data.name is set and data.path" in error(numbers, name="main")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start": -1}, "data.start is -1"),
        ({"start": 3, "stop": 3}, "data.stop is 3, not above data.start 3"),
        ({"max_questions": 0}, "data.max_questions is 0: use at least 1"),
        ({"kind": "proof"}, "data.kind 'proof' is unknown: use one of math, choice, boolean"),
    ],
)
def test_values_that_cannot_be_right_fail_before_anything_is_read(fields, message):
    with pytest.raises(DataError, match=message):
        DataSource("no/such", **fields)
