"""The row sampler and the refill stream."""

from hypothesis import given
from hypothesis import strategies as st
from trl.trainer.utils import RepeatSampler

from meml_mel.rlvr.sampler import QuestionSampler, RefillStream


@given(st.integers(2, 30), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_is_trls_order_in_every_epoch_without_experts(questions, batch, generations, repeats, seed):
    batch = min(batch, questions)
    theirs = RepeatSampler(range(questions), generations, batch, repeats, True, seed)
    ours = QuestionSampler(range(questions), 1, generations, batch, repeats, True, seed)
    assert len(ours) == len(theirs)
    for epoch in range(3):
        ours.set_epoch(epoch)
        assert list(ours) == list(theirs)


def test_a_new_process_takes_up_any_epoch():
    first = QuestionSampler(range(9), 1, 2, 3, 1, True, 5)
    orders = []
    for epoch in range(3):
        first.set_epoch(epoch)
        orders.append(list(first))
    resumed = QuestionSampler(range(9), 1, 2, 3, 1, True, 5)
    resumed.set_epoch(2)
    assert list(resumed) == orders[2] != orders[1]


@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_keeps_a_questions_rows_adjacent(questions, experts, generations, batch):
    batch = min(batch, questions)
    sampler = QuestionSampler(range(questions * experts), experts, generations, batch, 1, True, 0)
    indices = list(sampler)
    block = experts * generations
    for start in range(0, len(indices), block):
        question = indices[start] // experts
        expected = [question * experts + e for e in range(experts) for _ in range(generations)]
        assert indices[start : start + block] == expected


def test_refuses_fewer_questions_than_a_step():
    import pytest

    with pytest.raises(ValueError, match="3 questions are fewer than the 4 of one step"):
        QuestionSampler(range(6), 2, 4, 4, 1, True, 0)


def test_the_refill_stream_goes_on_from_its_position():
    stream = RefillStream(10, seed=3)
    first = stream.draw(4, exclude=set())
    position = stream.position
    second = stream.draw(4, exclude=set(first))
    resumed = RefillStream(10, seed=3)
    resumed.position = position
    assert resumed.draw(4, exclude=set(first)) == second
    assert not set(first) & set(second)


def test_the_refill_stream_ends_where_every_question_is_excluded():
    assert RefillStream(3, seed=0).draw(2, exclude={0, 1, 2}) == []
    assert sorted(RefillStream(3, seed=0).draw(9, exclude=set())) == [0, 1, 2]
