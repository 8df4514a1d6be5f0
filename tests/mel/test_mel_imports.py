"""mel/ sees a scored batch and a `generate` function: no trainer, model library, evaluator or Hub."""

import subprocess
import sys

FORBIDDEN = ("trl", "transformers", "accelerate", "lighteval", "huggingface_hub", "datasets", "vllm")


def test_mel_imports_no_trainer_and_no_hub():
    code = (
        "import sys, pkgutil, importlib, meml_mel.mel as mel\n"
        "for module in pkgutil.iter_modules(mel.__path__): importlib.import_module(f'meml_mel.mel.{module.name}')\n"
        f"print([name for name in {FORBIDDEN} if name in sys.modules])\n"
        "print(sorted(n for n in sys.modules if n.startswith(('meml_mel.meml', 'meml_mel.train', 'meml_mel.hub'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
