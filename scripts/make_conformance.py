"""Write tests/conformance/vectors.json: one optimizer step of GRPO, MEL, MEML and both, in numbers.

    python scripts/make_conformance.py

Needs plain Python alone: neither torch nor this package is imported, so that the file can check both, and a
port to another framework. Sums are exact fractions; roots and exponentials have 50 decimal digits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

getcontext().prec = 50
OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "conformance" / "vectors.json"

DESCRIPTION = """
One optimizer step in numbers, for ports of MEL and MEML-GRPO to other frameworks. Lists over rollouts are
indexed [question][expert][sample]; questions and experts are numbered from 0.
BATCHES. `rewards`: 1 right, 0 wrong, null ungradable (the gold could not be parsed: advantage 0, in no statistic,
but counted in Q and in the policy loss's divisors). `finish`: 'length' marks a response without its end token,
which is never a supervised target. `has_solution`: per question, whether a ground-truth solution is known.
`logps` and `old_logps`: log-probability of each sampled token, end token included, under the current policy and
under the one that sampled (temperature 1, response under its own expert's prompt). `clip`: [low, high] per loss
type. `max_completion_length`: the divisor of dr_grpo.
`advantages`: per estimator; the group is one expert's responses to one question; deviations have Bessel's
correction and 1e-4 is added before dividing. rft_right is rft with the divisor 'right'; meml_printed is dr_grpo with
negative advantages dropped. `policy_loss`: advantage, then loss type -> L_policy, to be minimised, where a token's
loss is -min(ratio * A, clip(ratio) * A) and ratio = exp(logp - old_logp): grpo is the mean over rollouts of
the mean over tokens, dr_grpo the sum over tokens / (rollouts * max_completion_length), dapo the sum over tokens /
number of tokens, all over the whole step.
SUPERVISED TARGETS. NLL = minus the mean of a target's token log-probabilities. `meta_experiences`: the retained
ones, with log-probabilities under the analysis prompt. `mutual_candidates`: right responses of `expert` (the best)
with log-probabilities under the prompt of expert `under` (the worst); under the best expert's prompt they are the
batch's `logps`. `hard_examples`: ground-truth solutions under an expert's prompt; `before`: in the buffer when the
step begins, of questions of earlier steps. Entries that the rules leave out are there on purpose.
CASES. `objectives`: coefficient c and options of the objectives that are on (mutual learning takes all targets of
a question; the hard-example trigger is 'all_experts'). `terms`: per objective `normalize` -> `form` -> the
examples with their final `weight` (c, 1/Q and 1/n_q inside) and `loss`, the sum of weight * NLL. normalize
'questions' gives c / (Q * n_q) with Q all questions of the step and n_q the question's targets, 'kept' gives c / N
with N the step's targets. form 'printed' minimises log p(O+|worst) - log p(O+|best). The buffer has one
normalization: c / B over all B buffered examples when their number reaches the capacity, else no loss.
`totals`: L_policy plus the losses of all terms; hard examples are in each.
"""

# -- one step's inputs -------------------------------------------------------------------------------------


class Digits:
    """Three-decimal numbers from a linear congruential generator: the same everywhere, for ever."""

    def __init__(self, seed: int):
        self.state = seed

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def logps(self, length: int) -> list[Fraction]:
        return [Fraction(-1 - self.below(2500), 1000) for _ in range(length)]

    def near(self, logps: Sequence[Fraction]) -> list[Fraction]:
        """Log-probabilities up to 0.4 away, so that ratios are clipped on both sides."""
        return [min(Fraction(-1, 1000), x + Fraction(self.below(801) - 400, 1000)) for x in logps]


def batch(rewards: list, has_solution: list[bool], unfinished: set[tuple[int, int, int]], seed: int) -> dict:
    digits = Digits(seed)

    def each(function: Callable) -> list:
        return [
            [[function(q, e, g) for g in range(len(group))] for e, group in enumerate(question)]
            for q, question in enumerate(rewards)
        ]

    logps = each(lambda q, e, g: digits.logps(1 + digits.below(6)))
    return {
        "rewards": rewards,
        "finish": each(lambda q, e, g: "length" if (q, e, g) in unfinished else "stop"),
        "has_solution": has_solution,
        "logps": logps,
        "old_logps": each(lambda q, e, g: digits.near(logps[q][e][g])),
        "clip": {
            "grpo": [Fraction(2, 10), Fraction(2, 10)],
            "dr_grpo": [Fraction(2, 10), Fraction(2, 10)],
            "dapo": [Fraction(2, 10), Fraction(28, 100)],
        },
        "max_completion_length": 8,
    }


def single_batch() -> dict:
    """One nameless expert. Question 1 all wrong, 2 all right (no pair), 3 ungradable."""
    single = batch(
        rewards=[[[1, 0, 0, 1]], [[0, 0, 0, 0]], [[1, 1, 1, 1]], [[None] * 4], [[0, 0, 1, 0]]],
        has_solution=[True] * 5,
        unfinished={(1, 0, 2), (4, 0, 3)},
        seed=260210224,
    )
    digits = Digits(1)
    single["meta_experiences"] = [
        {"question": 0, "logps": digits.logps(7)},
        {"question": 0, "logps": digits.logps(4)},
        {"question": 4, "logps": digits.logps(9)},
    ]
    return single


def expert_batch() -> dict:
    """Three experts.

    Question 0: best 0, worst 1, three targets. 1: best 2, worst 0, one of two right responses unfinished.
    2: all right (a tie, no pair). 3: all wrong. 4: ungradable. 5: a tie with pairs, none retained. 6: all
    wrong and no solution.
    """
    wrong, right = [0, 0, 0, 0], [1, 1, 1, 1]
    experts = batch(
        rewards=[
            [[1, 1, 0, 1], wrong, [1, 0, 0, 0]],
            [wrong, [1, 0, 0, 0], [0, 1, 1, 0]],
            [right, right, right],
            [wrong, wrong, wrong],
            [[None] * 4] * 3,
            [[1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0]],
            [wrong, wrong, wrong],
        ],
        has_solution=[True, True, True, True, True, True, False],
        unfinished={(1, 2, 1), (3, 0, 0), (6, 2, 3)},
        seed=250809670,
    )
    digits = Digits(2)
    experts["meta_experiences"] = [
        {"question": 0, "logps": digits.logps(6)},
        {"question": 1, "logps": digits.logps(5)},
        {"question": 1, "logps": digits.logps(8)},
    ]
    experts["mutual_candidates"] = [
        {
            "question": q,
            "expert": best,
            "sample": g,
            "under": worst,
            "logps": digits.logps(len(experts["logps"][q][best][g])),
        }
        for q, best, worst, g in [(0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 1, 3), (1, 2, 0, 1), (1, 2, 0, 2)]
    ]
    experts["hard_examples"] = [
        {"question": "earlier", "expert": 0, "before": True, "logps": digits.logps(5)},
        {"question": "earlier", "expert": 1, "before": True, "logps": digits.logps(5)},
        *({"question": 3, "expert": e, "before": False, "logps": digits.logps(3)} for e in range(3)),
    ]
    return experts


# -- the formulas ------------------------------------------------------------------------------------------


def decimal(value: Fraction | Decimal | int) -> Decimal:
    return (
        Decimal(value.numerator) / Decimal(value.denominator)
        if isinstance(value, Fraction)
        else Decimal(value)
    )


def mean(values: Sequence) -> Fraction:
    return Fraction(sum(values)) / len(values)


def deviation(values: Sequence) -> Decimal:
    """Standard deviation with Bessel's correction."""
    middle = mean(values)
    return decimal(Fraction(sum((x - middle) ** 2 for x in values)) / (len(values) - 1)).sqrt()


def graded(values: Sequence) -> list:
    return [x for x in values if x is not None]


def advantages(rewards: list) -> dict[str, list]:
    """Estimator -> advantages, indexed as the rewards. Every group here is graded as a whole or not at all."""
    epsilon = Decimal("1e-4")
    everything = [x for question in rewards for group in question for x in graded(group)]
    centred_everything = [
        x - mean(group) for question in rewards for group in question for x in graded(group) if graded(group)
    ]
    rollouts = sum(len(group) for question in rewards for group in question)

    def by_group(function: Callable[[int, list], Fraction | Decimal | int]) -> list:
        return [
            [[0 if x is None else function(x, group) for x in group] for group in question]
            for question in rewards
        ]

    def others(x: int, group: list) -> Fraction:
        return Fraction(sum(group) - x) / (len(group) - 1)

    overall, spread = mean(everything), deviation(everything)
    return {
        "grpo": by_group(lambda x, group: decimal(x - mean(group)) / (deviation(group) + epsilon)),
        "dr_grpo": by_group(lambda x, group: x - mean(group)),
        "rloo": by_group(lambda x, group: x - others(x, group)),
        "reinforce_pp": by_group(lambda x, group: decimal(x - overall) / (spread + epsilon)),
        "reinforce_pp_baseline": by_group(
            lambda x, group: decimal(x - mean(group)) / (deviation(centred_everything) + epsilon)
        ),
        "rft": by_group(lambda x, group: x),
        "rft_right": by_group(lambda x, group: Fraction(x * rollouts, sum(everything))),
        "meml_printed": by_group(lambda x, group: max(x - mean(group), Fraction(0))),
    }


def policy_loss(data: dict, advantage: list, loss_type: str) -> Decimal:
    low, high = data["clip"][loss_type]
    sequences = []  # one list of token losses per rollout
    for q, question in enumerate(data["logps"]):
        for e, group in enumerate(question):
            for g, logps in enumerate(group):
                a = decimal(advantage[q][e][g])
                losses = []
                for new, old in zip(logps, data["old_logps"][q][e][g]):
                    ratio = decimal(new - old).exp()
                    clipped = min(max(ratio, decimal(1 - low)), decimal(1 + high))
                    losses.append(-min(ratio * a, clipped * a))
                sequences.append(losses)
    if loss_type == "grpo":
        return sum(sum(losses) / len(losses) for losses in sequences) / len(sequences)
    total = sum(sum(losses) for losses in sequences)
    if loss_type == "dr_grpo":
        return total / (len(sequences) * data["max_completion_length"])
    return total / sum(len(losses) for losses in sequences)


def nll(logps: Sequence[Fraction]) -> Fraction:
    return -mean(logps)


def weights(questions: Sequence[int], q_total: int, coefficient: Fraction, normalize: str) -> list[Fraction]:
    """The final weight of each target, given the question each belongs to."""
    if normalize == "kept":
        return [coefficient / len(questions) for _ in questions]
    return [coefficient / (q_total * questions.count(q)) for q in questions]


def meta_experience(data: dict, coefficient: Fraction) -> dict:
    targets = data["meta_experiences"]
    answer = {}
    for normalize in ("questions", "kept"):
        w = weights([t["question"] for t in targets], len(data["rewards"]), coefficient, normalize)
        examples = [{"target": i, "weight": x} for i, x in enumerate(w)]
        loss = sum(x * nll(t["logps"]) for x, t in zip(w, targets))
        answer[normalize] = {"nll": {"examples": examples, "loss": loss}}
    return answer


def mutual_learning(data: dict, coefficient: Fraction) -> dict:
    """Best and worst expert from the rewards; all finished right responses of the best are targets."""
    chosen = []
    for q, question in enumerate(data["rewards"]):
        means = {e: mean(group) for e, group in enumerate(question) if graded(group)}
        if not means or max(means.values()) == min(means.values()):
            continue
        best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
        chosen += [
            {"question": q, "expert": best, "sample": g, "under": worst}
            for g, x in enumerate(question[best])
            if x == 1 and data["finish"][q][best][g] == "stop"
        ]
    candidates = data["mutual_candidates"]
    keys = [{key: c[key] for key in ("question", "expert", "sample", "under")} for c in candidates]
    answer = {}
    for normalize in ("questions", "kept"):
        w = weights([c["question"] for c in chosen], len(data["rewards"]), coefficient, normalize)
        learned = printed = Fraction(0)
        examples, both = [], []
        for target, x in zip(chosen, w):
            worst_nll = nll(candidates[keys.index(target)]["logps"])
            best_nll = nll(data["logps"][target["question"]][target["expert"]][target["sample"]])
            learned += x * worst_nll
            printed += x * (best_nll - worst_nll)  # log p(O+|worst) - log p(O+|best)
            examples.append({**target, "weight": x})
            both += [{**target, "weight": -x}, {**target, "under": target["expert"], "weight": x}]
        answer[normalize] = {
            "nll": {"examples": examples, "loss": learned},
            "printed": {"examples": both, "loss": printed},
        }
    return answer


def hard_examples(data: dict, coefficient: Fraction, capacity: int) -> dict:
    buffer = [h for h in data["hard_examples"] if h["before"]]
    for q, question in enumerate(data["rewards"]):
        answers = [x for group in question for x in graded(group)]
        if answers and not any(answers) and data["has_solution"][q]:
            buffer += [h for h in data["hard_examples"] if h["question"] == q]
    if len(buffer) < capacity:
        return {"nll": {"examples": [], "loss": 0}}
    w = coefficient / len(buffer)
    examples = [{"question": h["question"], "expert": h["expert"], "weight": w} for h in buffer]
    return {"nll": {"examples": examples, "loss": sum(w * nll(h["logps"]) for h in buffer)}}


# -- cases -------------------------------------------------------------------------------------------------

MEL = {"meta_experience": {"coefficient": Fraction(1)}}
MEML = {
    "mutual_learning": {"coefficient": Fraction(1, 10), "max_targets": "all"},
    "hard_examples": {"coefficient": Fraction(1), "capacity": 5},
}
UNFILLED = {"hard_examples": {"coefficient": Fraction(1), "capacity": 6}}
CASES = [
    ("grpo", "single", {}),
    ("mel", "single", MEL),
    ("meml", "experts", MEML),
    ("meml_unfilled_buffer", "experts", {**MEML, **UNFILLED}),
    ("both", "experts", {**MEML, **MEL}),
]
POLICY = [  # advantage, loss type
    *[(a, t) for a in ("grpo", "dr_grpo", "rloo") for t in ("grpo", "dr_grpo", "dapo")],
    *[(a, t) for a in ("reinforce_pp", "reinforce_pp_baseline", "meml_printed") for t in ("grpo", "dapo")],
]
TOTALS = [("grpo", "grpo"), ("dr_grpo", "dr_grpo"), ("grpo", "dapo")]


def case(name: str, batch_name: str, data: dict, objectives: dict) -> dict:
    terms = {}
    if "meta_experience" in objectives:
        terms["meta_experience"] = meta_experience(data, objectives["meta_experience"]["coefficient"])
    if "mutual_learning" in objectives:
        terms["mutual_learning"] = mutual_learning(data, objectives["mutual_learning"]["coefficient"])
    if "hard_examples" in objectives:
        hard = objectives["hard_examples"]
        terms["hard_examples"] = {"buffer": hard_examples(data, hard["coefficient"], hard["capacity"])}
    forms = ("nll", "printed") if "mutual_learning" in objectives else ("nll",)
    totals = []
    for advantage, loss_type in TOTALS:
        for normalize in ("questions", "kept") if objectives else ("questions",):
            for form in forms:
                value = data["policy_loss"][advantage][loss_type]
                for name_, term in terms.items():
                    by_form = term["buffer" if name_ == "hard_examples" else normalize]
                    value += decimal(by_form[form if name_ == "mutual_learning" else "nll"]["loss"])
                totals.append(
                    {
                        "advantage": advantage,
                        "loss_type": loss_type,
                        "normalize": normalize,
                        "form": form,
                        "value": value,
                    }
                )
    return {"name": name, "batch": batch_name, "objectives": objectives, "terms": terms, "totals": totals}


def build() -> dict:
    """The whole file as numbers: floats are the nearest to the exact values."""
    batches = {"single": single_batch(), "experts": expert_batch()}
    for data in batches.values():
        data["advantages"] = advantages(data["rewards"])
        data["policy_loss"] = {}
        for advantage, loss_type in POLICY:
            value = policy_loss(data, data["advantages"][advantage], loss_type)
            data["policy_loss"].setdefault(advantage, {})[loss_type] = value
    cases = [case(name, key, batches[key], objectives) for name, key, objectives in CASES]
    return numbers({"description": " ".join(DESCRIPTION.split()), "batches": batches, "cases": cases})


def numbers(value):
    if isinstance(value, Fraction | Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return value


def render(value, indent: int = 0) -> str:
    """JSON with short values on one line each, so that a change shows in a diff where it is."""
    flat = json.dumps(value)
    if len(flat) + indent <= 110 or not isinstance(value, dict | list):
        return flat
    space = " " * (indent + 1)
    if isinstance(value, dict):
        inner = [f"{json.dumps(key)}: {render(item, indent + 1)}" for key, item in value.items()]
    else:
        inner = [render(item, indent + 1) for item in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opening}\n{space}" + f",\n{space}".join(inner) + f"\n{' ' * indent}{closing}"


if __name__ == "__main__":
    text = render(build()) + "\n"
    if "--check" in sys.argv:
        sys.exit(0 if OUTPUT.read_text() == text else f"{OUTPUT} differs: run this script without --check")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(text)
