"""Three kernels; while the second is checked for the first time, whoever runs the suite gets a signal."""

import os
import time
from pathlib import Path

from roofwatch import KernelSpec, cases

DONE = Path(os.environ["ENDS_RUN_DONE"])
"""Exists once the signal was sent; each check and each block of samples adds a line."""


def _end_run():
    fork_server = os.getppid()
    run = int(Path(f"/proc/{fork_server}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(run, int(os.environ["ENDS_RUN_SIGNAL"]))
    time.sleep(60)  # the run ends this process


def declare(name):
    def inputs(case, make):
        is_first_time = name == "second" and (not DONE.exists() or "second" not in DONE.read_text())
        with DONE.open("a") as file:
            file.write(f"{name}\n")
        if is_first_time:
            _end_run()
        return {"x": make.normal(case["n"])}

    spec = KernelSpec(
        name=name,
        inputs=inputs,
        reference=lambda x: x + 1,
        cases=cases(shapes=[{"n": 64}]),
        flop_count=lambda case: case["n"],
        memory_bytes=lambda case: 8 * case["n"],
    )
    spec.implementation(os.environ["ENDS_RUN_LANGUAGE"])(lambda x: x + 1)
    return spec


first = declare("first")
second = declare("second")
third = declare("third")
