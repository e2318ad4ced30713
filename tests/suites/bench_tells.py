"""Kernels that fail, and say as they do what must not leave the machine."""

import os
import sys

import torch
from roofwatch import KernelSpec, cases

WORDS = "/home/alice/secret-project/weights.bin of alice@example.com with --token hunter2hunter2"

tells = KernelSpec(
    name="tells",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x,
    cases=cases(shapes=[{"n": 8}]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 8 * case["n"],
)


@tells.implementation("torch", name="raises")
def raises(x):
    raise RuntimeError(f"cannot read {WORDS}")


@tells.implementation("torch", name="dies")
def dies(x):
    sys.stderr.write(f"giving up at {WORDS}\n")
    sys.stderr.flush()
    os._exit(7)


launches = 0


@tells.implementation("torch", name="raises_later")
def raises_later(x):
    global launches
    launches += 1
    if launches > 20:
        raise RuntimeError(f"cannot write {WORDS}")
    return x.clone()


@tells.implementation("torch", name="raises_if_profiled")
def raises_if_profiled(x):
    if torch.autograd._profiler_enabled():
        raise RuntimeError(f"cannot trace {WORDS}")
    return x.clone()
