"""A gated activation as one operator after another."""

import torch

from roofwatch import KernelSpec, cases


def gated(x, gate):
    return x * torch.sigmoid(gate) * gate + x.abs().clamp(0, 1)


gated_spec = KernelSpec(
    name="gated",
    inputs=lambda case, make: {
        "x": make.normal(case["n"], 1024),
        "gate": make.normal(case["n"], 1024),
    },
    reference=gated,
    cases=cases(shapes=[{"n": 256}], dtypes=["float32"]),
    flop_count=lambda case: 8 * case["n"] * 1024,
    memory_bytes=lambda case: 3 * case["n"] * 1024 * case.itemsize,
)


@gated_spec.implementation("torch")
def gated_eager(x, gate):
    return gated(x, gate)
