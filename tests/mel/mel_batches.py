"""Small scored questions, and a `generate` that answers by script: `scored("q1", e0="RRWT")`."""

from collections.abc import Callable, Sequence

from meml_mel.data.question import Question
from meml_mel.grading.verdict import Grade
from meml_mel.mel.objective import MetaExperienceConfig, MetaExperienceObjective
from meml_mel.prompts import Prompts
from meml_mel.rlvr.objective import Completion, GenerationRequest, Outcome, StepContext, run_waves
from meml_mel.rlvr.rollouts import Finish, ScoredBatch, ScoredQuestion
from tests import rollouts
from tests.mel.analyses import PLAIN, F

PROMPTS = Prompts.load()
GRADES: dict[str, tuple[Grade, Finish]] = {
    "R": (Grade("right"), "stop"),
    "W": (Grade("wrong", "different"), "stop"),
    "T": (Grade("wrong", "truncated"), "length"),
    "U": (Grade("ungradable", "unparsable_gold"), "stop"),
}
RIGHT, WRONG = Grade("right"), Grade("wrong", "different")


# Analyses that are none, by the exclusion they lead to.
BROKEN = {
    "analysis_prompt_too_long": Completion("", (), "prompt_too_long"),
    "analysis_truncated": Completion(PLAIN, (1, 2), "length"),
    "analysis_run_on": Completion(PLAIN + "\n\nHuman: next", (1, 2), "stop"),
    "invalid_format": Completion(PLAIN.split("## 4.")[0], (1, 2), "stop"),
}


def scored(question_id: str, answer: str = "97", **groups: str) -> ScoredQuestion:
    """One letter of GRADES a rollout."""
    question = Question(question_id, problem=f"The problem {question_id}?", answer=answer)
    names = {expert: "" if expert == "nameless" else expert for expert in groups}
    return ScoredQuestion(
        question=question,
        experts=tuple(groups),
        prompts=tuple(PROMPTS.solve(question, names[expert]) for expert in groups),
        groups=rollouts.groups(GRADES, question_id, groups),
    )


def wrong_of(request: GenerationRequest) -> str:
    """Which wrong rollout an analysis request shows."""
    return request.prompt[-1]["content"].split("[Attempt with a WRONG answer]\n")[1].split("\n")[0]


def analysis(request: GenerationRequest) -> Completion:
    """A well-formed analysis; its ids tell the pairs apart, its section 1 names the wrong rollout."""
    text = PLAIN.replace(F, f"Step: in {wrong_of(request)} a sign was lost.\nCause: haste.")
    return Completion(text, (*request.prompt[-1]["content"].encode()[-5:], len(text)), "stop")


class Scripted:
    """Answers analyses by `analyse(request)`, replays by `replay(request)`; keeps every call's requests."""

    def __init__(
        self,
        analyse: Callable[[GenerationRequest], Completion] = analysis,
        replay: Callable[[GenerationRequest], Completion] = lambda r: Completion("ok", (7,), "stop", RIGHT),
    ):
        self.analyse, self.replay = analyse, replay
        self.calls: list[list[GenerationRequest]] = []

    def __call__(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.calls.append(list(requests))
        return [self.analyse(r) if r.phase == "analysis" else self.replay(r) for r in requests]

    def requests(self, phase: str) -> list[GenerationRequest]:
        return [r for call in self.calls for r in call if r.phase == phase]


def replay_by(right: set[str]) -> Scripted:
    """Replays are right for the wrong rollouts named, wrong for the others."""

    def replay(request):
        told = request.prompt[-1]["content"]
        return Completion("r", (5, 6), "stop", RIGHT if any(name in told for name in right) else WRONG)

    return Scripted(replay=replay)


def run(
    questions: Sequence[ScoredQuestion],
    generate=None,
    seed: int = 3,
    step: int = 0,
    objective: MetaExperienceObjective | None = None,
    **options,
) -> Outcome:
    objective = objective or MetaExperienceObjective(MetaExperienceConfig(**options), PROMPTS)
    context = StepContext(seed, step, len(questions))
    return run_waves([objective], ScoredBatch(step, tuple(questions)), context, generate or Scripted())[
        "meta_experience"
    ]
