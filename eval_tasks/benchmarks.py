"""The benchmarks as lighteval tasks, for any lighteval command:

    lighteval accelerate "model_name=MODEL,batch_size=16" "mel_gsm8k|0" --custom-tasks eval_tasks/benchmarks.py
    lighteval accelerate "model_name=MODEL,batch_size=16,generation_parameters={temperature:0.6}" \
        "mel_gsm8k_sampled|0" --custom-tasks eval_tasks/benchmarks.py

Each benchmark (aime24, aime25, amc23, math500, olympiadbench, gsm8k, mathqa, strategyqa) is two tasks: `mel_NAME`
answers once at temperature 0, `mel_NAME_sampled` n times. lighteval has one temperature a run, so the two are two
runs. Settings: MEML_MEL_N (8), MEML_MEL_K (n; `1,4,8`), MEML_MEL_TEMPERATURE (0.6), MEML_MEL_MAX_TOKENS (the
benchmark's), MEML_MEL_DATA (a folder with the questions; else the Hub). From Python: `tasks_table(Sampling(n=4))`.

Besides lighteval this needs the package's grader, data mappings, prompts and statistics, which import neither
torch nor TRL: `pip install --no-deps meml-mel` and what lighteval brings will do. docs/evaluation.md has the rest.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from lighteval.metrics.metrics_sample import SampleLevelComputation, SamplingMetric
from lighteval.metrics.utils.metric_utils import SampleLevelMetricGrouping
from lighteval.models.abstract_model import ModelConfig
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc, SamplingMethod

from meml_mel.data.columns import MissingColumn, RowRejected
from meml_mel.evaluation.benchmarks import BENCHMARKS, Benchmark, Sampling, data_folder
from meml_mel.evaluation.decoding import PLAIN_STOPS, EvaluationError
from meml_mel.evaluation.responses import Response, read_response
from meml_mel.evaluation.stats import estimate, pass_at_k
from meml_mel.grading.pool import GradeItem, GradingPool
from meml_mel.grading.vote import ballots
from meml_mel.prompts.format import decide_format, end_token_ids, flatten
from meml_mel.prompts.library import Prompts

MODEL_VARIABLE = "MEML_MEL_MODEL_ARGS"  # lighteval's MODEL_ARGS, where they are not on the command line
UNKNOWN = math.nan


# -- the model that lighteval was given -----------------------------------------------------------------------


class Model(
    NamedTuple
):  # no dataclass: lighteval does not enter this module in sys.modules, which those need
    """What MODEL_ARGS say. lighteval shows a task neither the tokenizer nor the decoding."""

    name: str
    revision: str | None
    override_chat: bool | None
    temperature: float

    @property
    def tokenizer(self) -> Any:
        return _tokenizer(self.name, self.revision)

    @property
    def generation(self) -> Any:
        return _generation(self.name, self.revision)

    @property
    def chat(self) -> bool:
        """Whether lighteval will use the chat template."""
        if self.override_chat is not None:
            return self.override_chat
        return bool(getattr(self.tokenizer, "chat_template", None))


@lru_cache(maxsize=4)
def _tokenizer(name: str, revision: str | None) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name, revision=revision)


@lru_cache(maxsize=4)
def _generation(name: str, revision: str | None) -> Any:
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(name, revision=revision or "main")
    except OSError:
        return GenerationConfig()


def current_model() -> Model | None:
    """The model of this lighteval command; None where there is none to be seen (an endpoint, a Python script)."""
    text = os.environ.get(MODEL_VARIABLE)
    if text is None and "lighteval" in sys.argv[0]:
        text = next((word for word in sys.argv[1:] if "model_name=" in word or _is_yaml(word)), None)
    return None if text is None or "endpoint" in sys.argv else read_model_args(text)


def read_model_args(text: str) -> Model | None:
    """`model_name=...,generation_parameters={...}`, or the YAML file that holds them."""
    if _is_yaml(text):
        import yaml

        given = (yaml.safe_load(Path(text).read_text(encoding="utf-8")) or {}).get("model_parameters") or {}
    else:
        given = ModelConfig._parse_args(text)
    if not given.get("model_name"):
        return None
    override = given.get("override_chat_template")
    parameters = given.get("generation_parameters") or {}
    return Model(
        str(given.get("tokenizer") or given["model_name"]),
        given.get("revision"),
        None if override is None else str(override).lower() in ("true", "1", "yes"),
        float(parameters.get("temperature") or 0),
    )


def _is_yaml(word: str) -> bool:
    return word.endswith((".yaml", ".yml")) and Path(word).is_file()


def check_model(model: Model, task: str, temperature: float) -> None:
    """Refuse what lighteval would do silently: another temperature than the task's, a base model's chat template,
    greedy answers where samples are asked for."""
    if abs(model.temperature - temperature) > 1e-9:
        wanted = f"generation_parameters={{temperature:{temperature:g}}}" if temperature else "none of it"
        raise EvaluationError(
            f"task {task} is for temperature {temperature:g}, and the model arguments say {model.temperature:g}: give "
            f"{wanted}, or set MEML_MEL_TEMPERATURE; greedy and sampled tasks are separate runs"
        )
    if temperature and "accelerate" in sys.argv and not model.generation.do_sample:
        raise EvaluationError(
            f"{model.name}: lighteval samples only where the model's generation_config.json has do_sample: true, and "
            "this one has not: add it there"
        )
    ours = decide_format(model.tokenizer, "auto", model.name)
    if model.override_chat is None and model.chat != ours.chat:
        raise EvaluationError(
            f"{model.name}: lighteval would use its chat template ({ours.reason}): add override_chat_template=False "
            "to the model arguments, or True to use it all the same"
        )


# -- a task's questions ---------------------------------------------------------------------------------------


def prompt(row: dict[str, Any], task: str, benchmark: Benchmark, temperature: float) -> Doc | None:
    """A row as lighteval's Doc: the package's own wording, in plain text with its cue. None where the row makes no
    question, as in `load_questions`."""
    model = current_model()
    if model is not None:
        _check_once(model, task, temperature)
    try:
        question = benchmark.question(row)
    except (RowRejected, MissingColumn):
        return None
    messages = _prompts().solve(question)
    plain = model is not None and not model.chat
    return Doc(
        query=flatten(messages) if plain else messages[-1]["content"],
        choices=[question.answer],
        gold_index=0,
        specific={"question_id": question.id, "kind": question.kind},
    )


_check_once = lru_cache(maxsize=64)(check_model)


@lru_cache(maxsize=1)
def _prompts() -> Prompts:
    return Prompts.load()


def place(benchmark: Benchmark, folder: str | None) -> dict[str, Any]:
    """lighteval's keys for where the questions are. It reads folders, not files: a local file gets one of its own."""
    if folder is None:
        return {
            "hf_repo": benchmark.repo,
            "hf_subset": benchmark.config,
            "hf_revision": benchmark.revision,
            "hf_avail_splits": [benchmark.split],
            "evaluation_splits": [benchmark.split],
        }
    return {
        "hf_repo": str(_folder_of(benchmark.local_file(folder))),
        "hf_subset": "default",
        "hf_avail_splits": ["test"],
        "evaluation_splits": ["test"],
    }


def _folder_of(file: Path) -> Path:
    """A folder in the Hub's cache that holds nothing but `test.jsonl`, a link to the file."""
    from huggingface_hub import constants

    key = hashlib.sha256(str(file).encode()).hexdigest()[:16]
    folder = Path(constants.HF_HOME) / "meml_mel" / "eval_tasks" / key
    link = folder / "test.jsonl"
    if not link.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f".{os.getpid()}"
        made.symlink_to(file)
        made.replace(link)
    return folder


# -- metrics --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _pool() -> GradingPool:
    return GradingPool(workers=2)


class Graded(SamplingMetric, SampleLevelComputation):
    """One question's numbers from its n responses, graded together: docs/metrics.md defines them.

    `run` differs in every process. lighteval keys its cache of responses by the task and the model's *path*; with
    `run` in the task, responses of other weights at that path are never taken from it.
    """

    def __init__(self, n: int, ks: Sequence[int]):
        SamplingMetric.__init__(self)
        self.n, self.ks = n, tuple(ks)
        self.run = uuid.uuid4().hex

    def num_samples(self) -> int:
        return self.n

    @property
    def names(self) -> list[str]:
        """The metrics' names, in the order shown."""
        if self.n == 1:
            measures = ["pass@1"]
        else:
            several = [k for k in self.ks if k > 1]  # pass@1 and maj@1 of samples are avg
            measures = [f"avg@{self.n}", *(f"pass@{k}" for k in several), *(f"maj@{k}" for k in several)]
        return [*measures, "truncated", "no_answer", "mean_tokens"]

    def compute(self, doc: Doc, model_response: ModelResponse, **_: Any) -> dict[str, float]:
        """Raises RuntimeError where there are not n responses: nothing may stand for the missing ones."""
        responses = read_responses(model_response, current_model())
        if len(responses) != self.n:
            raise RuntimeError(
                f"{doc.task_name}, question {doc.id}: {len(responses)} responses, {self.n} were expected"
            )
        kind = (doc.specific or {})["kind"]
        gold = doc.get_golds()[0]
        grades = _pool().grade(
            [GradeItem(gold, r.text, kind, truncated=r.finish == "length") for r, _ in responses]
        )
        if any(grade.verdict == "ungradable" for grade in grades):
            return dict.fromkeys(self.names, UNKNOWN)  # left out of every count
        right = sum(grade.right for grade in grades)
        found: dict[str, float] = {}
        if self.n == 1:
            found["pass@1"] = float(right)
        else:
            [ballot] = ballots([(grades, kind)], _pool())
            found[f"avg@{self.n}"] = right / self.n
            for k in self.ks:
                if k > 1:
                    found[f"pass@{k}"] = pass_at_k(self.n, right, k)
                    found[f"maj@{k}"] = ballot.at(k)
        known = all(exact for _, exact in responses)
        cut = sum(grade.reason == "truncated" for grade in grades) / self.n
        tokens = sum(r.tokens for r, _ in responses) / self.n
        found |= {"truncated": cut if known else UNKNOWN, "mean_tokens": tokens if known else UNKNOWN}
        found["no_answer"] = sum(grade.reason == "no_answer" for grade in grades) / self.n
        return {name: found[name] for name in self.names}


def read_responses(model_response: ModelResponse, model: Model | None) -> list[tuple[Response, bool]]:
    """Each response, and whether its end and length are known.

    lighteval pads a batch's responses to one length and says of none whether it ended; with the tokenizer this is
    read from the tokens. Without tokens (endpoints) or tokenizer the text is graded as it is.
    """
    rows = [[int(t) for t in row] for row in model_response.output_tokens or []]
    if model is None or len(rows) != len(model_response.text) or not all(rows):
        return [(Response(text, 0, "stop"), False) for text in model_response.text]
    tokenizer = model.tokenizer
    ends = end_token_ids(tokenizer, model.generation)
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    stop = () if model.chat else PLAIN_STOPS
    return [(read_response(row, ends, stop, lambda ids: decode(list(ids))), True) for row in rows]


def counted(values: Sequence[float], name: str, per_question: int) -> dict[str, float]:
    """A measure over the corpus with its count: `name`, and `name:k`, `name:n`, `name:low`, `name:high`."""
    kept = [value * per_question for value in values if not math.isnan(value)]
    found = estimate(kept, [per_question] * len(kept))
    if found is None:
        return {name: UNKNOWN, f"{name}:k": 0.0, f"{name}:n": 0.0}
    low, high = found.interval
    return {
        name: found.value,
        f"{name}:k": found.k,
        f"{name}:n": float(found.n),
        f"{name}:low": low,
        f"{name}:high": high,
    }


def mean(values: Sequence[float], name: str) -> dict[str, float]:
    """A rate or a length; unknown where it is of any response that counts."""
    return {name: sum(values) / len(values) if values else UNKNOWN}


def metric(n: int, ks: Sequence[int]) -> SampleLevelMetricGrouping:
    """All of a task's numbers as one lighteval metric."""
    graded = Graded(n, ks)
    corpus: dict[str, Callable[..., Any]] = {}
    for name in graded.names:
        if "@" in name:
            corpus[name] = partial(counted, name=name, per_question=n if name.startswith("avg@") else 1)
        else:
            corpus[name] = partial(mean, name=name)
    return SampleLevelMetricGrouping(
        metric_name=graded.names,
        higher_is_better={name: "@" in name for name in graded.names},  # type: ignore[misc]
        category=SamplingMethod.GENERATIVE,
        sample_level_fn=graded,
        corpus_level_fn=corpus,
    )


# -- the tasks ------------------------------------------------------------------------------------------------


def tasks_table(
    sampling: Sampling | None = None,
    folder: str | None = None,
    benchmarks: Mapping[str, Benchmark] = BENCHMARKS,
) -> list[LightevalTaskConfig]:
    """A greedy and a sampled task for each benchmark; with `folder`, for those whose file it holds."""
    sampling = sampling or Sampling()
    table = []
    for benchmark in benchmarks.values():
        try:
            where = place(benchmark, folder)
        except EvaluationError:
            if folder is None or not Path(folder).expanduser().is_dir():
                raise
            continue  # another benchmark's task may be asked for; lighteval says that it cannot find this one
        for suffix, n, temperature in (("", 1, 0.0), ("_sampled", sampling.n, sampling.temperature)):
            table.append(
                LightevalTaskConfig(
                    name=f"mel_{benchmark.name}{suffix}",
                    prompt_function=partial(  # type: ignore[arg-type]  # None leaves a row out
                        prompt, benchmark=benchmark, temperature=temperature
                    ),
                    metrics=[metric(n, sampling.ks)],
                    generation_size=sampling.max_tokens or benchmark.max_tokens,
                    stop_sequence=list(PLAIN_STOPS),  # a list: lighteval appends it to one
                    version=1,
                    **where,
                )
            )
    return table


TASKS_TABLE = tasks_table(Sampling.from_environment(), data_folder())
