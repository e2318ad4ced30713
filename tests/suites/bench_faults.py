"""Kernels that are right when they are checked, and go wrong when they are timed; each followed by
one that works.
"""

import os
import signal
import time

import plus_one
import torch

CHECKED = 40
"""More launches than a check makes, and fewer than a block of samples."""


def declare(name, go_wrong):
    launches = 0

    def launch(x):
        nonlocal launches
        launches += 1
        if launches > CHECKED:
            go_wrong()
        return x + 1

    return plus_one.declare(name, launch)


def _assert():
    assert not "an assertion"


def _hang():
    while True:
        time.sleep(1)


is_killed = declare("is_killed", lambda: os.kill(os.getpid(), signal.SIGKILL))
works_first = declare("works_first", lambda: None)
asserts = declare("asserts", _assert)
hangs = declare("hangs", _hang)
works_then = declare("works_then", lambda: None)
exhausts_memory = declare("exhausts_memory", lambda: torch.empty(2**50))
aborts = declare("aborts", os.abort)
works_last = declare("works_last", lambda: None)
