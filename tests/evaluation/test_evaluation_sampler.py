"""The sampler against transformers' own greedy search, against the model's own distribution, and at its limits."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from meml_mel.evaluation.cache import roomy_cache
from meml_mel.evaluation.sampler import Sampler, SampleRequest, _choose, _uniforms
from tests import tiny

ENDS = (2, 1)


@pytest.fixture(scope="module")
def model():
    return tiny.model().eval()


def requests(count: int = 7, low: int = 5, high: int = 40) -> list[SampleRequest]:
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(6, 100) for _ in range(rng.randrange(low, high))) for _ in range(count)]
    return [SampleRequest(ids, (i,)) for i, ids in enumerate(prompts)]


def sampler(model, **changes) -> Sampler:
    return Sampler(model, tiny.tokenizer(), ENDS, **{"context": 512, **changes})


def test_greedy_responses_are_those_of_generate_one_prompt_at_a_time(model):
    tokenizer, asked = tiny.tokenizer(), requests()
    found = sampler(model)(asked, 40)
    for request, response in zip(asked, found, strict=True):
        ids = torch.tensor([request.ids])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
        written = out[0, ids.shape[1] :].tolist()
        ended = written[-1] in ENDS
        assert response.tokens == len(written)
        assert response.finish == ("stop" if ended else "length")
        assert response.text == tokenizer.decode(written, skip_special_tokens=True)
    assert {r.finish for r in found} == {"stop", "length"}  # both are met, and rows leave the batch at times


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_response_does_not_depend_on_its_batch(model, temperature):
    asked = requests()
    together = sampler(model)(asked, 30, temperature, seed=3)
    alone = sampler(model, memory_bytes=1)(asked, 30, temperature, seed=3)
    assert len(sampler(model, memory_bytes=1)._batches(range(7), asked, [30] * 7)) == 7
    assert together == alone
    assert together != sampler(model)(asked, 30, temperature, seed=4) or temperature == 0


def test_samples_of_one_prompt_differ_by_their_key_and_leave_the_global_state_alone(model):
    before = torch.get_rng_state()
    ids = requests()[0].ids
    found = sampler(model)([SampleRequest(ids, ("q", s)) for s in range(4)], 30, 1.0)
    assert len({r.text for r in found}) == 4
    assert torch.equal(before, torch.get_rng_state())


def test_sampled_tokens_follow_the_softmax():
    """Frequencies over 20,000 draws against probabilities at temperature 2, within 4 standard errors."""
    logits = torch.tensor([[0.0, 1.0, 2.0, float("-inf"), 3.0]])
    uniform = np.random.default_rng(0).random(20_000)
    drawn = _choose(logits.expand(20_000, -1), 2.0, 1.0, uniform).bincount(minlength=5) / 20_000
    expected = (logits[0] / 2).softmax(0)
    assert drawn[3] == 0
    assert (drawn - expected).abs().max() < 4 * (0.25 / 20_000) ** 0.5


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    uniform = np.linspace(0, 1 - 1e-9, 1001)
    drawn = _choose(logits.expand(1001, -1), 1.0, 0.7, uniform).bincount(minlength=4) / 1001
    assert drawn.tolist() == pytest.approx([0.5 / 0.8, 0.3 / 0.8, 0, 0], abs=0.002)


def test_the_extremes_of_the_unit_interval_are_tokens():
    logits = torch.tensor([[float("-inf"), 0.0, 0.0, float("-inf")]])
    assert _choose(logits, 1.0, 1.0, np.array([0.0])).tolist() == [1]
    assert _choose(logits, 1.0, 1.0, np.array([np.nextafter(1, 0)])).tolist() == [2]


def test_random_numbers_come_from_seed_and_key_alone():
    one, two = _uniforms([("a",), ("b",)], 5, 0)
    assert (_uniforms([("b",)], 5, 0)[0] == two).all() and (one != two).all()
    assert (_uniforms([("a",)], 5, 1)[0] != one).all()


def test_a_response_takes_what_the_context_leaves(model):
    """Context 30: 25 tokens leave room for 5, 30 for none; an answer that fits is not cut."""
    asked = [SampleRequest((40,) * 25), SampleRequest((40,) * 30), SampleRequest((40,) * 5)]
    found = sampler(model, context=30)(asked, 12)
    free = sampler(model)(asked, 12)
    assert [r.finish for r in found][1] == "prompt_too_long" and found[1].tokens == 0
    assert found[0].tokens == min(5, free[0].tokens) and free[0].text.startswith(found[0].text)
    assert found[2] == free[2]


def test_text_ends_before_a_stop_string(model):
    asked = requests()
    plain = 0
    for request, response in zip(asked, sampler(model)(asked, 40), strict=True):
        stop = response.text[9:12]
        at = response.text.find(stop)
        (cut,) = sampler(model)([request], 40, stop=[stop])
        assert (cut.text, cut.finish) == (response.text[:at], "stop")
        assert at + len(stop) <= cut.tokens <= response.tokens
        if len(response.text) == response.tokens:  # a token a character, none of them special
            assert cut.tokens == at + len(stop)
            plain += 1
    assert plain


def test_progress_is_told_and_the_mode_kept(model):
    told = []
    model.train()
    sampler(model, memory_bytes=1)(requests(3), 4, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)] and model.training
    model.eval()


def test_the_cache_holds_what_transformers_own_holds():
    config = tiny.model().config
    from transformers import DynamicCache

    ours, theirs = roomy_cache(config), DynamicCache(config=config)
    generator = torch.Generator().manual_seed(0)
    for length in (5, 1, 1, 80, 1):
        keys, values = torch.randn(2, 4, 2, length, 3, generator=generator)
        for layer in range(2):
            found, expected = ours.update(keys, values, layer), theirs.update(keys, values, layer)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert ours.get_seq_length() == theirs.get_seq_length()
    for cache in (ours, theirs):
        cache.batch_select_indices(torch.tensor([2, 0]))
    keys, values = torch.randn(2, 2, 2, 1, 3, generator=generator)
    assert all(
        torch.equal(a, b)
        for a, b in zip(ours.update(keys, values, 0), theirs.update(keys, values, 0), strict=True)
    )
