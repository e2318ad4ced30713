"""Check the kernels of a suite one at a time, each with a time limit, and print the answers.

    python bench/false_alarms.py [SUITE.py] [--only 'rms_*' ...] [--depth full] [--folder FOLDER]

Without a suite, the bundled one is checked. FOLDER gets the report of each kernel.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

_ROOFWATCH = [sys.executable, "-m", "roofwatch"]
_CLAIMS = ("results", "layouts", "values", "bounds", "races", "offsets")


def kernel_names(suite: str | None) -> list[str]:
    """Names of a suite's kernels; whole models are no kernels."""
    command = [*_ROOFWATCH, "list"]
    if suite is not None:
        command.append(suite)
    command.append("--json")
    listed = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
    )
    kernels = json.loads(listed.stdout)["kernels"]
    return [kernel["name"] for kernel in kernels if kernel.get("family") != "workloads"]


def command_of(suite: str | None, kernel: str, options: argparse.Namespace) -> list[str]:
    """The command whose answer is judged."""
    if options.static:
        command = [*_ROOFWATCH, "static"]
        if suite is not None:
            command.append(suite)
        command += ["--kernel", kernel]
        command += ["--targets", options.targets, "--no-cache"]
    else:
        command = [*_ROOFWATCH, "check"]
        # a bundled kernel is a target itself
        if suite is None:
            command.append(kernel)
        else:
            command += [suite, "--case", f"{kernel}/*"]
        command += ["--depth", options.depth]
    command.append("--json")
    return command


def children_cpu_s() -> float:
    """CPU seconds of the processes that ended so far, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class CommandAnswer:
    status: int | None
    """None beyond the time limit."""
    output: str
    errors: str
    wall_s: float
    cpu_s: float


def run(command: list[str], limit_s: float) -> CommandAnswer:
    """Run a command and all that it starts, at most for some seconds."""
    started_s = time.monotonic()
    cpu_before_s = children_cpu_s()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        # its workers are processes of their own
        os.killpg(process.pid, signal.SIGTERM)
        output, errors = process.communicate()
        status = None
    return CommandAnswer(
        status=status,
        output=output,
        errors=errors,
        wall_s=time.monotonic() - started_s,
        cpu_s=children_cpu_s() - cpu_before_s,
    )


def answers_of(document: dict[str, Any]) -> Iterator[str]:
    """What a report says against a kernel."""
    for claim in document.get("proofs", ()):
        if claim["result"] == "refuted":
            yield f"{claim['claim']}: {claim['detail']}"
    for proof in document.get("overflow_proofs", ()):
        # proofs say the same in more words
        if proof["proof"] == "unsafe" and "proofs" not in document:
            yield f"offsets: {proof['case_id']}"
    for failure in document.get("failures", ()):
        yield f"failed: {failure}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", nargs="?")
    parser.add_argument(
        "--only",
        nargs="+",
        default=["*"],
        help="Patterns of kernels.",
    )
    parser.add_argument("--depth", default="quick", choices=("quick", "full"))
    parser.add_argument("--static", action="store_true", help="Compile instead.")
    parser.add_argument("--targets", default="sm_90")
    parser.add_argument(
        "--limit",
        type=float,
        default=300.0,
        help="Seconds for each kernel.",
    )
    parser.add_argument("--folder", type=Path, default=Path("build/false-alarms"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| kernel | seconds | CPU seconds | exit status | alarms |")
    print("|---|---|---|---|---|", flush=True)
    alarm_count = 0
    cpu_seconds: list[float] = []
    for kernel in kernel_names(options.suite):
        if not any(fnmatch(kernel, pattern) for pattern in options.only):
            continue
        answer = run(command_of(options.suite, kernel, options), options.limit)
        # for a look at what was answered
        (options.folder / f"{kernel}.json").write_text(answer.output)
        (options.folder / f"{kernel}.err").write_text(answer.errors)
        alarms: list[str] = []
        # output that was cut off by the limit is no document
        if answer.status is None:
            alarms.append("time limit")
        elif answer.output:
            alarms.extend(answers_of(json.loads(answer.output)))
        alarm_count += bool(alarms)
        cpu_seconds.append(answer.cpu_s)
        cells = [
            kernel,
            f"{answer.wall_s:.0f}",
            f"{answer.cpu_s:.0f}",
            str(answer.status),
            "; ".join(alarms),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{alarm_count} kernels with an alarm or without an answer")
    median_s = statistics.median(cpu_seconds)
    worst_s = max(cpu_seconds)
    print(f"CPU seconds of {len(cpu_seconds)} kernels: median {median_s:.0f}, worst {worst_s:.0f}")


if __name__ == "__main__":
    main()
