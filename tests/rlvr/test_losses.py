"""Supervised losses against hand values; dealing over ranks and micro-steps."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from meml_mel.rlvr.losses import TokenExample, deal, pad, sub_batches, weighted_kl, weighted_nll


def example(prompt=2, target=3, weight=1.0, teacher=None):
    return TokenExample((7,) * prompt, (8,) * target, weight, (9,) * teacher if teacher else None)


DUMMY = TokenExample((1,), (1,), 0.0)
lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), max_size=12)


def test_nll_is_the_weighted_token_mean_by_hand():
    batch = pad((example(2, 3, 0.5), example(1, 1, -2.0)), 0, torch.device("cpu"))
    # position t predicts t+1: row 0's targets stand at 2,3,4 (predicted at 1,2,3), row 1's at 1 (predicted at 0)
    logps = torch.tensor([[9.0, -1.0, -2.0, -6.0], [-4.0, 9.0, 9.0, 9.0]])
    loss, nll = weighted_nll(logps, batch)
    assert nll.tolist() == [3.0, 4.0]
    assert loss.item() == 0.5 * 3.0 - 2.0 * 4.0


def test_kl_by_hand_and_only_the_student_learns():
    batch = pad((example(1, 2, 0.5, 1),), 0, torch.device("cpu"))
    student = torch.zeros(2, 2, requires_grad=True)
    teacher = torch.tensor(
        [[math.log(3.0), 0.0], [0.0, 0.0]], requires_grad=True
    )  # (3/4, 1/4) and (1/2, 1/2)
    loss, means = weighted_kl(student, teacher, batch)
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert math.isclose(means.item(), expected / 2, rel_tol=1e-6)
    assert math.isclose(loss.item(), 0.5 * expected / 2, rel_tol=1e-6)
    loss.backward()
    assert teacher.grad is None
    # d KL / d logits = student - teacher, over two tokens, times the weight
    assert torch.allclose(student.grad, 0.25 * torch.tensor([[-0.25, 0.25], [0.0, 0.0]]))


def test_nll_gradient_is_a_policy_gradient_with_constant_reward():
    """MEL 3.4: d NLL = -(c/|t|) sum d log pi, i.e. REINFORCE on M* with the constant positive reward 1/|t|."""
    torch.manual_seed(0)
    logits = torch.randn(1, 5, 6, dtype=torch.float64, requires_grad=True)
    batch = pad((TokenExample((0, 1), (2, 3, 4), 1.0),), 0, torch.device("cpu"))
    logps = logits.log_softmax(-1)[:, :-1].gather(-1, batch.input_ids[:, 1:, None]).squeeze(-1)
    loss, _ = weighted_nll(logps, batch)
    (nll_gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
    score = torch.autograd.grad(logps[0, 1:4].sum(), logits)[0]
    assert torch.allclose(nll_gradient, -(1 / 3) * score, atol=1e-12)


@given(lengths, st.integers(1, 40))
def test_sub_batches_hold_every_example_once_within_the_budget(sizes, budget):
    examples = [example(p, t, float(i), p if kl else None) for i, (p, t, kl) in enumerate(sizes)]
    batches = sub_batches(examples, budget)
    assert sorted(e.weight for b in batches for e in b) == sorted(e.weight for e in examples)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(e.length for e in batch) <= budget
        assert len({e.teacher_ids is None for e in batch}) == 1


@given(lengths, st.integers(1, 4), st.integers(1, 3), st.integers(1, 40))
def test_every_rank_runs_the_same_forwards(sizes, ranks, micro_steps, budget):
    examples = [example(p, t, float(i + 1), p if kl else None) for i, (p, t, kl) in enumerate(sizes)]
    plan = deal(examples, ranks, micro_steps, budget, DUMMY)
    dealt = [e.weight for rank in plan for step in rank for b in step for e in b if e.weight]
    assert sorted(dealt) == sorted(e.weight for e in examples)
    for step in range(micro_steps):
        kinds = {tuple(bool(b[0].teacher_ids) for b in plan[rank][step]) for rank in range(ranks)}
        assert len(kinds) == 1
