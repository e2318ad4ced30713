"""The spec that the candidates in this folder are submitted for. Its implementations waste time on purpose."""

import torch
from roofwatch import KernelSpec, cases

SHAPES = [{"n_rows": 256, "n_cols": 1024}, {"n_rows": 192, "n_cols": 768}]

centred = KernelSpec(
    name="centred",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"]), "scale": 0.5},
    reference=lambda x, scale: (x - x.mean(dim=-1, keepdim=True)).square() * scale,
    cases=cases(shapes=SHAPES),
    edges=cases(shapes=[{"n_rows": 1, "n_cols": 7}]),
    flop_count=lambda case: 4 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"] * case.itemsize,
)


@centred.implementation("torch")
def centred_eager(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


accumulate = KernelSpec(
    name="accumulate",
    inputs=lambda case, make: {
        "total": make.normal(case["n_rows"], case["n_cols"]),
        "x": make.normal(case["n_rows"], case["n_cols"]),
    },
    reference=lambda total, x: torch.maximum(total, x.tanh()),
    cases=cases(shapes=SHAPES),
    flop_count=lambda case: 2 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 3 * case["n_rows"] * case["n_cols"] * case.itemsize,
    mutates=("total",),
)


@accumulate.implementation("torch")
def accumulate_eager(total, x):
    total.copy_(torch.maximum(total.double(), x.double().tanh()).float())
    return total


normalised = KernelSpec(
    name="normalised",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"])},
    reference=lambda x: torch.softmax(x, dim=-1),
    cases=cases(shapes=SHAPES),
    flop_count=lambda case: 5 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"] * case.itemsize,
)


@normalised.implementation("torch", name="eager")
def normalised_eager(x):
    e = torch.exp((x - x.max(dim=-1, keepdim=True).values).double())
    return (e / e.sum(dim=-1, keepdim=True)).float()


chosen = KernelSpec(
    name="chosen",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"])},
    reference=lambda x: tuple(torch.topk(x, 4, dim=-1)),
    cases=cases(shapes=SHAPES),
    flop_count=lambda case: 4 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: case["n_rows"] * case["n_cols"] * case.itemsize,
)


@chosen.implementation("torch")
def chosen_eager(x):
    values, indices = torch.topk(x.double(), 4, dim=-1)
    return values.float(), indices
