"""Kernels that fail, and say as they do what must not leave the machine."""

import os
import sys

import torch
from plus_one import declare

WORDS = "/home/alice/secret-project/weights.bin of alice@example.com with --token hunter2hunter2"
launches = 0


def _raise(x):
    raise RuntimeError(f"cannot read {WORDS}")


def _die(x):
    sys.stderr.write(f"giving up at {WORDS}\n")
    sys.stderr.flush()
    os._exit(7)


def _raise_later(x):
    global launches
    launches += 1
    if launches > 20:
        raise RuntimeError(f"cannot write {WORDS}")
    return x + 1


def _raise_if_profiled(x):
    if torch.autograd._profiler_enabled():
        raise RuntimeError(f"cannot trace {WORDS}")
    return x + 1


raises = declare("raises", _raise)
dies = declare("dies", _die)
raises_later = declare("raises_later", _raise_later)
raises_if_profiled = declare("raises_if_profiled", _raise_if_profiled)
