"""A launch that waits for the device, which no CUDA graph can hold, and one after it."""

import torch
from roofwatch import KernelSpec, cases


def declare(name, launch):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.normal(case["n"])},
        reference=lambda x: x + 1,
        cases=cases(shapes=[{"n": 2**20}]),
        flop_count=lambda case: case["n"],
        memory_bytes=lambda case: 8 * case["n"],
    )
    spec.implementation("torch")(launch)
    return spec


def _waits(x):
    torch.cuda.synchronize()
    return x + 1


waits_for_the_device = declare("waits_for_the_device", _waits)
works_after_it = declare("works_after_it", lambda x: x + 1)
