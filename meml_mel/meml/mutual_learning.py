"""MEML-GRPO's mutual learning: the worst expert's prompt learns the best expert's right responses.

L_mutual = (1/Q) * sum over questions of (1/n_q) * sum over its n_q targets O+ of NLL(O+ | P_worst, x), 0 where
it does not fire. Every choice that the sources leave open, and why `form: printed` works against the stated
aim: docs/meml-grpo.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, Literal, get_args

from ..rlvr.objective import Examination, Outcome, StepContext, SupervisedExample
from ..rlvr.rollouts import Message, Rollout, ScoredBatch, ScoredQuestion

Form = Literal["nll", "kl", "printed"]
TargetChoice = Literal["random", "shortest", "most_likely"]
Normalize = Literal["questions", "kept"]

# (prompt, target ids) of each candidate -> its mean log-probability per token under the learner, in order.
Score = Callable[[Sequence[tuple[tuple[Message, ...], tuple[int, ...]]]], Sequence[float]]

RECORD_FIELDS = {
    "step": "int64",
    "question_id": "string",
    "best": "string",
    "worst": "string",
    "best_mean": "double",
    "worst_mean": "double",
    "candidates": "int64",
    "targets": "int64",
    "target_samples": "string",  # the targets' sample numbers within the best expert's group
    "weight": "double",  # of each target; `printed` gives it with both signs
}


@dataclass(frozen=True, slots=True)
class MutualLearningConfig:
    """Options of mutual learning. [S] summary, [2] secondary accounts, [O] our choice: docs/meml-grpo.md.

    Args:
        coefficient: c_mutual; no source gives one [O: 0.1].
        form: `nll` of O+ under the worst expert's prompt (the aim is [S], the form [O]); `kl` from the best
            expert's detached distribution along O+ [O]; `printed`: log p(O+|P_worst) - log p(O+|P_best),
            minimised, which works against the aim [2].
        max_targets: targets a question, or `all` [O: 1].
        target_choice: of the best expert's right responses: `random`, `shortest`, or `most_likely` under the
            worst expert's prompt [O].
        normalize: `questions` weighs by c/(Q n_q), `kept` by c/N over the step's N targets [O].
    """

    coefficient: float = 0.1
    form: Form = "nll"
    max_targets: int | Literal["all"] = 1
    target_choice: TargetChoice = "random"
    normalize: Normalize = "questions"

    def __post_init__(self) -> None:
        if not 0 <= self.coefficient < float("inf"):
            raise ValueError(f"coefficient is {self.coefficient}: it must be 0 or more, and finite")
        if self.max_targets != "all" and (not isinstance(self.max_targets, int) or self.max_targets < 1):
            raise ValueError(f"max_targets is {self.max_targets!r}: it is 1 or more, or 'all'")
        for key, choices in (("form", Form), ("target_choice", TargetChoice), ("normalize", Normalize)):
            if getattr(self, key) not in get_args(choices):
                known = ", ".join(get_args(choices))
                raise ValueError(f"{key} is {getattr(self, key)!r}: it is one of {known}")


@dataclass(frozen=True, slots=True)
class Match:
    """One question's best and worst expert. `result` says whether it fires; if not, why not."""

    result: Literal["fired", "one_expert", "best_without_right", "ties", "without_target"]
    best: str = ""
    worst: str = ""
    best_mean: float = 0.0
    worst_mean: float = 0.0
    candidates: tuple[Rollout, ...] = ()
    unfinished: int = 0
    run_on: int = 0


class MutualLearningObjective:
    """The objective `mutual_learning` (protocol: `rlvr.objective.Objective`). It generates nothing.

    Args:
        score: needed by `target_choice: most_likely`. Called at most once a step, on every rank, with all
            candidates of the step, so that one collective call serves them all.
        has_run_on: says of a response's text whether it runs on after its answer; such a response is no target.

    Raises ValueError for `most_likely` without a scorer.
    """

    name = "mutual_learning"
    schema = RECORD_FIELDS

    def __init__(
        self,
        config: MutualLearningConfig,
        score: Score | None = None,
        has_run_on: Callable[[str], bool] | None = None,
    ):
        if config.target_choice == "most_likely" and score is None:
            raise ValueError(
                "mutual_learning.target_choice is 'most_likely', which needs log-probabilities under the learner, "
                "but no scorer was given: pass score=..., or set target_choice to 'random' or 'shortest'"
            )
        self.config = config
        self.score = score
        self.has_run_on = has_run_on or (lambda text: False)

    def examine(self, question: ScoredQuestion, context: StepContext) -> Examination:
        """Find the question's best and worst expert by mean reward, and the best one's usable right responses.

        Experts tied for best or for worst are drawn by the keyed generator.
        """
        return self._match(question, context)
        yield  # a generator, as the protocol wants, that asks for nothing

    def _match(self, question: ScoredQuestion, context: StepContext) -> Match:
        means = {expert: mean for expert, mean in question.mean_rewards().items() if not isnan(mean)}
        if len(means) < 2:
            return Match("one_expert")
        highest, lowest = max(means.values()), min(means.values())
        rng = context.rng(f"{self.name}/experts", question.question.id)
        best = rng.choice([expert for expert, mean in means.items() if mean == highest])
        worst = rng.choice([expert for expert, mean in means.items() if mean == lowest])
        match = Match("fired", best, worst, highest, lowest)
        right = [r for r in question.groups[question.experts.index(best)] if r.grade.right]
        if not right:
            return replace(match, result="best_without_right")
        if highest == lowest:
            return replace(match, result="ties")
        finished = [r for r in right if r.finish == "stop"]
        clean = tuple(r for r in finished if not self.has_run_on(r.text))
        return replace(
            match,
            result="fired" if clean else "without_target",
            candidates=clean,
            unfinished=len(right) - len(finished),
            run_on=len(finished) - len(clean),
        )

    def reduce(self, batch: ScoredBatch, findings: Sequence[Match], context: StepContext) -> Outcome:
        """Choose the targets of the questions that fire and give each its final weight."""
        firing = [(q, m) for q, m in zip(batch.questions, findings, strict=True) if m.result == "fired"]
        chosen = self._choose(firing, context)
        kept = sum(len(targets) for targets in chosen)
        outcome = Outcome(metrics=_metrics(findings, kept))
        for (question, match), targets in zip(firing, chosen, strict=True):
            count = kept if self.config.normalize == "kept" else context.questions * len(targets)
            weight = self.config.coefficient / count
            for target in targets:
                outcome.examples.extend(self._examples(question, match, target, weight))
            outcome.records.append(
                {
                    "step": context.step,
                    "question_id": question.question.id,
                    "best": match.best,
                    "worst": match.worst,
                    "best_mean": match.best_mean,
                    "worst_mean": match.worst_mean,
                    "candidates": len(match.candidates),
                    "targets": len(targets),
                    "target_samples": " ".join(str(target.sample) for target in targets),
                    "weight": weight,
                }
            )
        return outcome

    def _choose(
        self, firing: Sequence[tuple[ScoredQuestion, Match]], context: StepContext
    ) -> list[list[Rollout]]:
        """The targets of each firing question, at most `max_targets`, without replacement."""
        scores = self._scores(firing) if self.config.target_choice == "most_likely" else None
        chosen = []
        for index, (question, match) in enumerate(firing):
            candidates = list(match.candidates)
            if scores is not None:
                likelihood = scores[index]
                candidates.sort(key=lambda r: (-likelihood[r.sample], r.sample))
            elif self.config.target_choice == "shortest":
                candidates.sort(key=lambda r: (len(r.completion_ids), r.sample))
            else:
                context.rng(f"{self.name}/targets", question.question.id).shuffle(candidates)
            chosen.append(
                candidates if self.config.max_targets == "all" else candidates[: self.config.max_targets]
            )
        return chosen

    def _scores(self, firing: Sequence[tuple[ScoredQuestion, Match]]) -> list[dict[int, float]]:
        """Per firing question: its candidates' sample -> mean log-probability under the worst expert's prompt."""
        wanted = [(q.prompt(m.worst), r.completion_ids) for q, m in firing for r in m.candidates]
        answers = list(self.score(wanted)) if wanted and self.score else []
        if len(answers) != len(wanted):
            raise ValueError(f"the scorer answered {len(answers)} of {len(wanted)} candidates")
        values = iter(answers)
        return [{r.sample: next(values) for r in match.candidates} for _, match in firing]

    def _examples(
        self, question: ScoredQuestion, match: Match, target: Rollout, weight: float
    ) -> list[SupervisedExample]:
        learner, teacher = question.prompt(match.worst), question.prompt(match.best)
        example = SupervisedExample(
            self.name, question.question.id, learner, weight, target_ids=target.completion_ids
        )
        if self.config.form == "nll":
            return [example]
        if self.config.form == "kl":
            return [replace(example, teacher_prompt=teacher)]
        # log p(O+|P_worst) - log p(O+|P_best) = -NLL(O+|P_worst) + NLL(O+|P_best): minimising it unlearns O+
        # under the worst expert's prompt.
        return [replace(example, weight=-weight), replace(example, prompt=teacher)]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _metrics(matches: Sequence[Match], targets: int) -> dict[str, float]:
    """Counts of questions by result, of targets and left-out responses; `gap` is a mean over compared questions."""
    compared = [m for m in matches if m.result != "one_expert"]
    results = ("fired", "ties", "best_without_right", "one_expert", "without_target")
    return {
        **{result: float(sum(m.result == result for m in matches)) for result in results},
        "targets": float(targets),
        "excluded_unfinished": float(sum(m.unfinished for m in matches)),
        "excluded_run_on": float(sum(m.run_on for m in matches)),
        "compared": float(len(compared)),
        "gap": sum(m.best_mean - m.worst_mean for m in compared) / len(compared) if compared else 0.0,
    }
