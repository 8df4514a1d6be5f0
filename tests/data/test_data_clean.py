"""Cleaning: every row is a question, a duplicate or rejected; ids are unique; the hash is over the questions."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from meml_mel.data.clean import Cleaner, content_hash, problem_key
from meml_mel.data.mappings import Draft
from meml_mel.data.question import Question


def clean(drafts, gradable=lambda gold, kind: gold != "bad"):
    cleaner = Cleaner(gradable, "here")
    for number, draft in enumerate(drafts):
        cleaner.add(number, draft)
    return cleaner.result()


drafts = st.lists(
    st.builds(
        Draft,
        problem=st.sampled_from(["", "p", "p ", " q", "q", "r"]),
        answer=st.sampled_from(["", "1", "2", "bad"]),
        kind=st.sampled_from(["math", "boolean"]),
        id=st.sampled_from([None, "a", "b"]),
    ),
    max_size=30,
)


@given(drafts)
def test_every_row_is_exactly_one_of_question_duplicate_rejected(rows):
    out = clean(rows)
    assert out.rows == len(rows) == len(out.questions) + out.duplicates + len(out.rejected)
    ids = [q.id for q in out.questions]
    assert len(set(ids)) == len(ids)
    texts = [(" ".join(q.problem.split()), q.kind) for q in out.questions]
    assert len(set(texts)) == len(texts)
    good = {(" ".join(d.problem.split()), d.kind) for d in rows if d.problem and d.answer in ("1", "2")}
    assert set(texts) == good  # one bad gold does not cost the question its later good one


def test_same_text_of_another_kind_is_another_question():
    out = clean([Draft("p", "1"), Draft("p", "yes", kind="boolean")])
    assert len(out.questions) == 2


def test_case_counts_but_spacing_and_unicode_form_do_not():
    assert problem_key("caf\u00e9  x") == problem_key("cafe\u0301 x\n")
    assert problem_key("x") != problem_key("X")
    assert problem_key("x² = 4") != problem_key("x2 = 4")


def test_the_first_gradable_gold_is_kept_and_the_others_are_reported():
    out = clean(
        [Draft("p", "$1$", id="a"), Draft("p", "1"), Draft("p", "2"), Draft("p", "2"), Draft("p", "3")]
    )
    assert out.questions[0].answer == "$1$"
    assert out.duplicates == 4
    assert [(c.id, c.answers) for c in out.conflicts] == [("a", ("$1$", "2", "3"))]


def test_copies_of_a_rejected_row_count_as_duplicates():
    out = clean([Draft("p", "bad", id="a")] * 100 + [Draft("p", "1", id="a")])
    assert (len(out.rejected), out.duplicates, len(out.questions)) == (1, 99, 1)


def test_an_id_that_another_question_has_is_made_unique_by_content():
    first, second = clean([Draft("p", "1", id="a"), Draft("q", "1", id="a")]).questions
    assert first.id == "a" and second.id == f"a-{problem_key('q', 'math').hex()[:8]}"


def test_ids_without_an_id_column_do_not_depend_on_the_other_rows():
    whole = clean([Draft("p", "1"), Draft("q", "1"), Draft("r", "1")]).questions
    part = clean([Draft("r", "1"), Draft("q", "1")]).questions
    assert {q.problem: q.id for q in part}.items() <= {q.problem: q.id for q in whole}.items()


def test_a_gold_is_judged_once():
    asked = []
    clean([Draft(str(i), "12") for i in range(50)], gradable=lambda gold, kind: not asked.append(gold))
    assert asked == ["12"]


def test_content_hash_is_sha256_over_one_json_line_per_question():
    question = Question("a", "1+1?", "2", "math", "It is 2 é.", source="anywhere")
    line = '["a","1+1?","2","math","It is 2 \\u00e9."]\n'
    assert content_hash([question]) == hashlib.sha256(line.encode()).hexdigest()


def test_content_hash_changes_with_order_and_content_but_not_with_the_source():
    a, b = Question("a", "p", "1", source="x"), Question("b", "q", "2")
    assert content_hash([a, b]) != content_hash([b, a])
    assert content_hash([Question("a", "p", "1", source="y"), b]) == content_hash([a, b])
    assert content_hash([Question("a", "p", "3"), b]) != content_hash([a, b])
