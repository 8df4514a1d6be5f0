"""Both stages on a real small model in about ten minutes on two cores, with data that lie beside this file.

    python examples/smollm2/demo.py [--out runs/demo] [--model FOLDER] [--sft-steps 16] [--rl-steps 4]

Without a GPU and without the Hub: the model is SmolLM2-135M-Instruct from a PyPI wheel (98 MB). It is far too
short to improve anything; it shows every part at work: multi-expert SFT, then RL with mutual learning, the
hard-example buffer and meta-experiences. Each command is printed before it runs and works by itself.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(title: str, *command: object) -> None:
    """Print a command as it can be typed, run it, and stop the demo where it fails."""
    words = [str(word) for word in command]
    print(f"\n== {title}\n$ {shlex.join(['python', *words])}", flush=True)
    started = time.perf_counter()
    code = subprocess.run([sys.executable, *words]).returncode
    if code:
        sys.exit(f"the demo stopped: the command above ended with status {code}")
    print(f"== {time.perf_counter() - started:.0f} s", flush=True)


def summary(run_folder: Path) -> None:
    """What the RL stage did, from its own files."""
    import pyarrow.parquet as pq

    print("\nstep  reward  right  mixed  fired  flushed  pairs  valid  kept   loss")
    for line in (run_folder / "metrics.jsonl").read_text().splitlines():
        m = json.loads(line)
        counts = [
            m[key]
            for key in (
                "questions/mixed",
                "objective/mutual_learning/fired",
                "objective/hard_examples/flushed",
                "objective/meta_experience/pairs",
                "objective/meta_experience/analyses_valid",
                "objective/meta_experience/retained",
            )
        ]
        share = f"{m['reward']:6.2f}  {m['grade/right']:5.2f}"
        print(f"{m['step']:4d}  {share}" + "".join(f"  {c:5.0f}" for c in counts) + f"  {m['loss']:6.3f}")
    paths = sorted((run_folder / "records/meta_experience").glob("*.parquet"))
    records = [row for path in paths for row in pq.read_table(path).to_pylist()]
    for title, wanted in (("a retained", True), ("a dropped", False)):
        shown = [r for r in records if r["retained"] == wanted and r["analysis"]]
        if shown:
            why = "" if wanted else f" ({shown[0]['exclusion']})"
            print(f"\n-- {title} meta-experience{why}, as written:\n{shown[0]['analysis'].strip()[:800]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--model", type=Path, default=Path("models/smollm2-135m-instruct"))
    parser.add_argument("--sft-steps", type=int, default=16)
    parser.add_argument("--rl-steps", type=int, default=4)
    options = parser.parse_args()
    if (options.out / "rl/metrics.jsonl").exists():
        sys.exit(f"{options.out} holds a demo already: remove it, or give --out another folder")

    if not (options.model / "config.json").exists():
        run("the model, from a PyPI wheel", HERE / "get_model.py", "--out", options.model)
    experts, questions = HERE / "data/experts.jsonl", HERE / "data/questions.jsonl"
    shown = options.out / "demonstrations"
    run(
        "what an analysis and a replay look like, written by rule",
        HERE / "make_analyses.py",
        *("--config", "smollm2-135m/sft", "--experts-column", "experts", "--out", shown),
        *("--data.path", experts),
    )
    run(
        "stage 1: multi-expert SFT",
        *("-m", "meml_mel.train.sft", "--config", "smollm2-135m/sft", "--model_name_or_path", options.model),
        *("--data.path", experts, "--output_dir", options.out / "sft", "--max_steps", options.sft_steps),
        *(
            "--sft.extra_rows.0.path",
            shown / "analyses.jsonl",
            "--sft.extra_rows.1.path",
            shown / "replays.jsonl",
        ),
        *("--max_length", 1024, "--sft.over_long", "drop", "--save_strategy", "no", "--bf16", "false"),
    )
    run(
        "stage 2: RL with all three objectives",
        *("-m", "meml_mel.train.rl", "--config", "smollm2-135m/meml_mel"),
        *("--model_name_or_path", options.out / "sft/final", "--output_dir", options.out / "rl"),
        *("--data.path", questions, "--data.mapping", "gsm8k", "--data.name", "null"),
        *("--max_steps", options.rl_steps, "--save_strategy", "no", "--gradient_accumulation_steps", 4),
        *("--sampling.analysis.max_tokens", 256, "--max_completion_length", 128),
    )
    summary(options.out / "rl")
    print(f"\nEverything is in {options.out}: rl/metrics.jsonl, rl/records (Parquet), rl/final (the model).")
    print("Next: the same commands with your own data and model; docs/training.md explains every number.")


if __name__ == "__main__":
    main()
