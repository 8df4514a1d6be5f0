"""MEL's objective: pairs -> analyses -> replays -> supervised examples (MEL 3.2, 3.3, Eq. 2-9).

    L_mel = c_mel * (1/Q) * sum over questions of (1/n_q) * sum over its n_q retained of NLL(M* | C_retro)

`distil` runs the same code over graded rollouts without a trainer. Equations, deviations and metrics:
docs/mel.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from ..data.question import Question
from ..prompts.library import Context, Order, Prompts
from ..rlvr.objective import (
    Completion,
    Examination,
    GenerationRequest,
    Outcome,
    StepContext,
    SupervisedExample,
    run_waves,
)
from ..rlvr.rollouts import ScoredBatch, ScoredQuestion
from .leak import Leak, leaks, measure
from .metrics import step_metrics
from .pairs import Pair, PairChoice, cap_pairs, make_pairs
from .parse import HEADINGS, FormatError, MetaExperience, echoed_sections, parse_meta_experience
from .records import RECORD_FIELDS, Candidate, Exclusion, record_of
from .run_on import analysis_runs_on
from .yield_watch import YieldWatch

logger = logging.getLogger(__name__)

Normalize = Literal["questions", "kept"]
Generate = Callable[[Sequence[GenerationRequest]], Sequence[Completion]]


@dataclass(frozen=True, slots=True)
class MetaExperienceConfig:
    """Options of MEL. [P] the paper, [2] secondary accounts, [O] our choice: docs/mel.md.

    Args:
        coefficient: c_mel, 1 [P Eq. 9-10].
        pairs_per_question: N, not stated in the paper; `all` is the whole of Y+ x Y- [O: 1].
        max_pairs_per_step: at most this many pairs over all questions of the step; null for no limit [O].
        pair_choice: `random`, `exclude_truncated` (neither rollout cut at the limit) or `shortest` [O].
        across_experts: with experts, y+ and y- may come from different ones [O].
        normalize: `questions` weighs by c/(Q n_q), Eq. 7 line 2 and Eq. 8-10 [P]; `kept` by c/N over the
            step's N retained, Eq. 7 line 1 [P].
        replay_context: `full` shows the replay all of M [P Eq. 6]; `heuristics_only` shows H, which should
            not hold the answer [O].
        drop_leaked: leave out, before its replay, an M whose shown text states the answer [O: false, the
            paper has no such check].
        order: which attempt the analysis prompt shows first: `wrong_first` [2], or `right_first`, so that
            pairs with the same right attempt share a prefix [O].
        warn_below_valid: warn once when fewer of the pairs give a well-formed analysis [O].
        warn_below_retained: warn once when fewer of the pairs are retained [O].
        warn_after_steps: steps with pairs that both rates are taken over [O].
    """

    coefficient: float = 1.0
    pairs_per_question: int | Literal["all"] = 1
    max_pairs_per_step: int | None = None
    pair_choice: PairChoice = "random"
    across_experts: bool = True
    normalize: Normalize = "questions"
    replay_context: Context = "full"
    drop_leaked: bool = False
    order: Order = "wrong_first"
    warn_below_valid: float = 0.1
    warn_below_retained: float = 0.02
    warn_after_steps: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.coefficient < float("inf"):
            raise ValueError(f"coefficient is {self.coefficient}: it must be 0 or more, and finite")
        if self.pairs_per_question != "all" and (
            not isinstance(self.pairs_per_question, int) or self.pairs_per_question < 1
        ):
            raise ValueError(f"pairs_per_question is {self.pairs_per_question!r}: it is 1 or more, or 'all'")
        if self.max_pairs_per_step is not None and self.max_pairs_per_step < 1:
            raise ValueError(
                f"max_pairs_per_step is {self.max_pairs_per_step}: it is 1 or more, or null for no limit; "
                "to train without meta-experiences leave objectives.meta_experience out"
            )
        for key, choices in (
            ("pair_choice", PairChoice),
            ("normalize", Normalize),
            ("replay_context", Context),
            ("order", Order),
        ):
            if getattr(self, key) not in get_args(choices):
                raise ValueError(
                    f"{key} is {getattr(self, key)!r}: it is one of {', '.join(get_args(choices))}"
                )
        for key in ("warn_below_valid", "warn_below_retained"):
            if not 0 <= getattr(self, key) <= 1:
                raise ValueError(f"{key} is {getattr(self, key)}: it is a share, from 0 (never warn) to 1")
        if self.warn_after_steps < 1:
            raise ValueError(f"warn_after_steps is {self.warn_after_steps}: it must be at least 1")


class MetaExperienceObjective:
    """The objective `meta_experience` (protocol: `rlvr.objective.Objective`).

    Args:
        config: the options.
        prompts: the loaded templates; `prompts.check()` is the caller's to run before any model loads.
        has_run_on: says of an analysis whether it goes on after its end; such a text is no target.
        cut: what of a rollout's text the analysis prompt shows (the grader's cut at run-on text, say); all of
            it by default.

    State over steps: the two rates' window and which warnings were given (`warnings` holds their texts).
    """

    name = "meta_experience"
    schema = RECORD_FIELDS

    def __init__(
        self,
        config: MetaExperienceConfig,
        prompts: Prompts,
        has_run_on: Callable[[str], bool] = analysis_runs_on,
        cut: Callable[[str], str] | None = None,
    ):
        self.config = config
        self.prompts = prompts
        self.has_run_on = has_run_on
        self.cut = cut or (lambda text: text)
        self.warnings: list[str] = []
        self._watch = YieldWatch(
            {"valid": config.warn_below_valid, "retained": config.warn_below_retained},
            config.warn_after_steps,
        )
        blank = prompts.analyse(Question("", "", ""), right="", wrong="", order=config.order)
        self._instruction = blank[-1]["content"]
        self._kept: tuple[int, dict[str, int]] | None = None  # the step's cap: step, question id -> pairs

    def plan(self, batch: ScoredBatch, context: StepContext) -> None:
        """Share `max_pairs_per_step` out over the batch's questions, by keyed draws alone."""
        self._kept = None
        if self.config.max_pairs_per_step is not None:
            drawn = {q.question.id: self._draw(q, context) for q in batch.questions}
            self._kept = (
                context.step,
                cap_pairs(
                    drawn,
                    self.config.max_pairs_per_step,
                    priority=lambda question_id: context.rng(f"{self.name}/cap", question_id).random(),
                ),
            )

    def examine(self, question: ScoredQuestion, context: StepContext) -> Examination:
        """Ask for the analyses of the question's pairs at once, then for the replays of the valid ones.

        Returns the list of its `Candidate`s, [] for a question without pairs. Raises ValueError for a replay
        that comes back without a grade, RuntimeError when a cap is set and `plan` was not called.
        """
        pairs = self._pairs(question, context)
        if not pairs:
            return []
        shown = [(self.cut(pair.right.text), self.cut(pair.wrong.text)) for pair in pairs]
        analyses = yield [
            GenerationRequest(
                "analysis", self.prompts.analyse(question.question, right, wrong, self.config.order)
            )
            for right, wrong in shown
        ]
        candidates = [
            self._analysed(question, pair, texts, analysis)
            for pair, texts, analysis in zip(pairs, shown, analyses, strict=True)
        ]
        waiting = [i for i, candidate in enumerate(candidates) if candidate.exclusion is None]
        if waiting:
            replays = yield [self._replay_request(question, candidates[i]) for i in waiting]
            for i, replay in zip(waiting, replays, strict=True):
                candidates[i] = _replayed(candidates[i], replay)
        return candidates

    def reduce(
        self, batch: ScoredBatch, findings: Sequence[list[Candidate]], context: StepContext
    ) -> Outcome:
        """Retained meta-experiences to examples with final weights: c/(Q n_q), or c/N (`normalize`)."""
        kept_in_all = sum(candidate.retained for candidates in findings for candidate in candidates)
        outcome = Outcome()
        for scored, candidates in zip(batch.questions, findings, strict=True):
            n_q = sum(candidate.retained for candidate in candidates)
            share = kept_in_all if self.config.normalize == "kept" else context.questions * n_q
            for candidate in candidates:
                weight = self.config.coefficient / share if candidate.retained else None
                if weight is not None:
                    outcome.examples.append(self._example(scored, candidate, weight))
                outcome.records.append(self._record(scored, candidate, context, weight))
        outcome.metrics = step_metrics(batch, findings)
        self._warn(batch, findings)
        return outcome

    def state_dict(self) -> dict[str, Any]:
        return self._watch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._watch.load_state_dict(state)

    def _draw(self, question: ScoredQuestion, context: StepContext) -> list[Pair]:
        return make_pairs(
            question,
            self.config.pairs_per_question,
            self.config.pair_choice,
            context.rng(self.name, question.question.id),
            self.config.across_experts,
        )

    def _pairs(self, question: ScoredQuestion, context: StepContext) -> list[Pair]:
        pairs = self._draw(question, context)
        if self.config.max_pairs_per_step is None:
            return pairs
        if self._kept is None or self._kept[0] != context.step:
            raise RuntimeError("max_pairs_per_step is set: call plan(batch, context) before examine")
        return pairs[: self._kept[1].get(question.question.id, 0)]

    def _analysed(
        self, question: ScoredQuestion, pair: Pair, shown: tuple[str, str], analysis: Completion
    ) -> Candidate:
        """A candidate after its analysis: excluded with the reason, or waiting for its replay."""
        unread: Exclusion | None = None
        if analysis.finish == "prompt_too_long":
            unread = "analysis_prompt_too_long"
        elif analysis.finish == "length":
            unread = "analysis_truncated"
        elif self.has_run_on(analysis.text):
            unread = "analysis_run_on"
        if unread:
            return Candidate(pair, *shown, analysis, None, None, None, unread)
        parsed = self._read(analysis.text)
        if not isinstance(parsed, MetaExperience):
            return Candidate(pair, *shown, analysis, parsed, None, None, "invalid_format")
        leak = measure(parsed, question.question)
        leaked = self.config.drop_leaked and self._shown_leaks(parsed, leak, question)
        return Candidate(pair, *shown, analysis, parsed, leak, None, "leaked" if leaked else None)

    def _read(self, text: str) -> MetaExperience | FormatError:
        parsed = parse_meta_experience(text)
        if isinstance(parsed, FormatError):
            return parsed
        echoed = echoed_sections(parsed, self._instruction)
        if not echoed:
            return parsed
        said = "; ".join(f"section '{HEADINGS[name]}' repeats the instruction" for name in echoed)
        return FormatError(echoed, said)

    def _shown_leaks(self, experience: MetaExperience, leak: Leak, question: ScoredQuestion) -> bool:
        """Whether what the replay would read states the answer."""
        if self.config.replay_context == "full":
            return leak.anywhere
        return leaks(experience.heuristics, question.question)

    def _replay_request(self, question: ScoredQuestion, candidate: Candidate) -> GenerationRequest:
        """The question with M ahead of it, under the prompt of the expert that was wrong (MEL Eq. 6)."""
        assert isinstance(candidate.parsed, MetaExperience)
        solve_prompt = question.prompt(candidate.pair.wrong.expert)
        system = "\n\n".join(m["content"] for m in solve_prompt if m["role"] == "system")
        messages = self.prompts.replay(
            question.question, candidate.parsed, system, self.config.replay_context
        )
        return GenerationRequest("replay", messages, grade_for=question.question)

    def _example(self, scored: ScoredQuestion, candidate: Candidate, weight: float) -> SupervisedExample:
        """NLL(M* | C_retro): the analysis' sampled ids under the prompt that asked for it (MEL Eq. 7)."""
        prompt = self.prompts.analyse(
            scored.question, candidate.right_text, candidate.wrong_text, self.config.order
        )
        return SupervisedExample(
            self.name, scored.question.id, prompt, weight, target_ids=candidate.analysis.token_ids
        )

    def _record(
        self, scored: ScoredQuestion, candidate: Candidate, context: StepContext, weight: float | None
    ) -> dict[str, Any]:
        return record_of(
            candidate,
            scored.question,
            context.step,
            self.config.order,
            self.config.replay_context,
            self.prompts.versions,
            weight,
        )

    def _warn(self, batch: ScoredBatch, findings: Sequence[list[Candidate]]) -> None:
        seen = [
            (scored.question.id, candidate)
            for scored, candidates in zip(batch.questions, findings, strict=True)
            for candidate in candidates
        ]
        warning = self._watch.see(seen)
        if warning:
            self.warnings.append(warning)
            if os.environ.get("RANK", "0") == "0":  # every rank comes to the same warning
                logger.warning("%s: %s", self.name, warning)


def _replayed(candidate: Candidate, replay: Completion) -> Candidate:
    """Keep M iff its replay is right (MEL Eq. 6)."""
    exclusion: Exclusion | None = None
    if replay.finish == "prompt_too_long":
        exclusion = "replay_prompt_too_long"
    elif replay.grade is None:
        raise ValueError("a replay came back without a grade: generate must grade requests with grade_for")
    elif not replay.grade.right:
        exclusion = "replay_wrong"
    return replace(candidate, replay=replay, exclusion=exclusion)


def distil(
    questions: Sequence[ScoredQuestion],
    generate: Generate,
    config: MetaExperienceConfig,
    prompts: Prompts,
    seed: int = 0,
    step: int = 0,
    model_revision: str | None = None,
) -> list[dict[str, Any]]:
    """Meta-experiences from graded rollouts, without a trainer: the records (`RECORD_FIELDS`) of all candidates.

    `generate(requests)` answers all requests in order, those with `grade_for` graded. Weights in the records
    are those of one step over all the questions.
    """
    batch = ScoredBatch(step, tuple(questions))
    objective = MetaExperienceObjective(config, prompts)
    context = StepContext(seed, step, len(batch.questions))
    records = run_waves([objective], batch, context, generate)[objective.name].records
    return [record | {"model_revision": model_revision} for record in records]
