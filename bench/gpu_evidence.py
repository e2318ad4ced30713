"""Collect evidence from this machine's GPU, step by step, and compare it with the targets.

    python -m bench.gpu_evidence FOLDER [--only STEP ...] [--seconds 540] [--device cuda]
                                 [--archive FILE]

Each step is a command with its own time limit that leaves a file in the folder; its output goes to
`STEP.log`. A step whose file exists is skipped, so the command can be repeated until everything is
there. A step that fails or reaches its limit does not stop the others, and the next call repeats it
after the steps that were not tried. The page, README.md, is written anew after each step. Exit
status 1: a step is missing; 2: there is no GPU.

An archive holds everything so far, for a machine whose files are lost between calls: it is written
anew after each step, and unpacked into an empty folder.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.gpu_archive import read_archive, write_archive
from bench.gpu_page import page
from bench.gpu_plan import PREDICTIONS, EvidenceStep, prediction_command, steps
from roofwatch.model.errors import CollectorError

_SECONDS = 540
_BUNDLE = Path("build/gpu-bundle")
"""What was made elsewhere for this machine; see `make gpu-bundle`."""


def run_step(step: EvidenceStep, folder: Path, seconds: float) -> str | None:
    """Run one step; returns why it failed. Standard output of a command that prints JSON becomes
    its file.
    """
    output = folder / step.output
    log = folder / f"{step.name}.log"
    try:
        command = step.command(folder)
        printed, status = _run(command, log, seconds)
    except subprocess.TimeoutExpired:
        return f"not done after {seconds:.0f} s; repeat the command"
    except (CollectorError, OSError, ValueError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    text = printed.decode(errors="replace")
    with log.open("a") as log_file:
        log_file.write(text)
    # A command that fails may print a message instead of JSON.
    prints_document = output.suffix == ".json" and "--json" in command
    if prints_document and text.startswith(("{", "[")):
        output.write_text(text)
    if not output.exists():
        return f"exit status {status}; see {log.name}"
    return None


def _run(command: Sequence[str], log: Path, seconds: float) -> tuple[bytes, int]:
    """Run a command; returns what it printed, and its exit status.

    Raises:
        TimeoutExpired: it was not done in time. All that it started ends with it: a process that
        stays on the GPU would slow the next step.
    """
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            printed, _ = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return printed, process.returncode


def missing_gpu() -> str | None:
    """Say why nothing can be measured on a GPU here; None if torch can use one."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported ({error})"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU on this machine"
    return None


def carry_predictions(bundle: Path, folder: Path) -> None:
    """Take over what another machine predicted, so that no time on a GPU is spent on it."""
    predictions = bundle / PREDICTIONS
    if predictions.exists() and not (folder / PREDICTIONS).exists():
        shutil.copy(predictions, folder / PREDICTIONS)


def collect(
    missing_steps: Sequence[EvidenceStep],
    folder: Path,
    *,
    seconds: float,
    archive: Path | None,
) -> dict[str, str]:
    """Run steps until the time is over; returns why steps are missing, by name."""
    deadline = time.monotonic() + seconds
    failures: dict[str, str] = {}
    for step in missing_steps:
        seconds_left = deadline - time.monotonic()
        if seconds_left < 1:
            failures[step.name] = "no time left; repeat the command"
            continue
        print(f"{step.name} ...", file=sys.stderr, flush=True)
        why = run_step(step, folder, min(seconds_left, step.limit_s))
        if why is not None:
            failures[step.name] = why
        # The machine may go away at any time.
        (folder / "README.md").write_text(page(folder, failures))
        if archive is not None:
            for name in write_archive(folder, archive):
                print(f"not in the archive, too large: {name}", file=sys.stderr)
    return failures


def main() -> int:
    options = _parse_options()
    if options.predictions:
        return subprocess.run(prediction_command(), check=False).returncode
    if options.device == "cuda":
        problem = missing_gpu()
        if problem is not None:
            print(f"{problem}; to rehearse: python -m bench.gpu_rehearsal", file=sys.stderr)
            return 2
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.archive is not None:
        read_archive(options.archive, folder)
    carry_predictions(_BUNDLE, folder)
    missing = [step for step in steps(options.device) if not (folder / step.output).exists()]
    # A step that failed before must not keep the others from being tried; sorting is stable.
    missing.sort(key=lambda step: (folder / f"{step.name}.log").exists())
    selected = missing
    if options.only:
        selected = [step for step in missing if step.name.startswith(tuple(options.only))]
    failures = {step.name: "not asked for" for step in missing if step not in selected}
    failures |= collect(
        missing_steps=selected,
        folder=folder,
        seconds=options.seconds,
        archive=options.archive,
    )
    (folder / "README.md").write_text(page(folder, failures))
    print(json.dumps(failures, indent=2))
    return 1 if failures else 0


def _parse_options() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("examples/gpu"),
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="names of steps, or their beginning",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SECONDS,
        help="time for all steps of this call",
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--archive", type=Path, help="everything so far in one file")
    parser.add_argument(
        "--predictions",
        action="store_true",
        help="print what the cycle model predicts of the headline kernels as JSON, and end",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
