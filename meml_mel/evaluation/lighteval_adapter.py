"""lighteval's own command with only our tasks in it, where the plain command does not start.

    python -m meml_mel.evaluation.lighteval_adapter accelerate "model_name=MODEL,batch_size=16" "mel_gsm8k|0"

is `lighteval accelerate ... --custom-tasks <the package's eval_tasks/benchmarks.py>`, after `mend()`:

- lighteval 0.13 refuses latex2sympy2_extended other than 1.0.6, which pins math-verify to 0.5.2: the check is relaxed;
- it imports all built-in tasks at every start: one needs the network, one fails with huggingface_hub 2.x. Only the
  custom module is loaded.

Everything else is lighteval's. A process of its own is advised: importing lighteval's transformers model turns
gradients off for the whole process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .. import resources


def mend() -> None:
    """Make lighteval 0.13 start offline, with huggingface_hub 2.x and math-verify 0.9. To be called before its
    metrics are imported; twice does no harm."""
    from lighteval.utils import imports
    from packaging.requirements import Requirement

    found: Any = imports.required_dependencies()  # cached: the changed dicts stay
    required, by_extra = found
    loose = Requirement("latex2sympy2_extended")
    for name in [n for n in required if n.replace("-", "_") == loose.name]:
        required[name] = loose
    by_extra[None] = [r if r.name.replace("-", "_") != loose.name else loose for r in by_extra[None]]

    from lighteval.tasks.registry import Registry

    Registry.load_all_task_configs = staticmethod(_only_custom)  # type: ignore[method-assign]


def _only_custom(custom_tasks: Any = None, load_multilingual: bool = False) -> dict[str, Any]:
    from lighteval.tasks.registry import Registry

    return Registry._extract_configs(Registry.create_custom_tasks_module(custom_tasks or tasks_file()))


def tasks_file() -> str:
    """The package's task module."""
    return str(resources.path("eval_tasks", "benchmarks.py"))


def main(argv: Sequence[str] | None = None) -> Any:
    """Run lighteval's command line; `--custom-tasks` is our module unless given."""
    words = list(sys.argv[1:] if argv is None else argv)
    if (
        words
        and words[0] not in ("tasks", "baseline")
        and "--custom-tasks" not in words
        and "--help" not in words
    ):
        words += ["--custom-tasks", tasks_file()]
    mend()
    sys.argv = [
        "lighteval",
        *words,
    ]  # the tasks read the model's arguments from it, as under the plain command
    from lighteval.__main__ import app

    return app(words, standalone_mode=False)


if __name__ == "__main__":
    main()
