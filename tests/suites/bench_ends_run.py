"""Three kernels; while the second is checked for the first time, whoever runs the suite gets a
signal.
"""

import os
import time
from pathlib import Path

import plus_one

DONE = Path(os.environ["ENDS_RUN_DONE"])
"""Exists once the signal was sent; each check and each block of samples adds a line."""


def _end_run():
    # the interpreter's server is forked from the process that the run started
    fork_server = os.getsid(os.getppid())
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

    spec = plus_one.declare(name, lambda x: x + 1, language=os.environ["ENDS_RUN_LANGUAGE"])
    spec.inputs = inputs
    return spec


first = declare("first")
second = declare("second")
third = declare("third")
