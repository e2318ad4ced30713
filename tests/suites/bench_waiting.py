"""Four kernels that note when they are first called, and return once they are let go."""

import os
import time
from pathlib import Path

from roofwatch import KernelSpec, cases

FOLDER = Path(os.environ.get("ROOFWATCH_TEST_FOLDER", "."))


def waiting_kernel(number: int) -> KernelSpec:
    spec = KernelSpec(
        name=f"waiting{number}",
        inputs=lambda case, make: {"x": make.normal(case["n"])},
        reference=lambda x: x + number,
        cases=cases(shapes=[{"n": 64}], directions=["fwd"]),
        flop_count=lambda case: case["n"],
        memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
    )

    @spec.implementation("torch")
    def eager(x):
        if not hasattr(eager, "was_called"):
            eager.was_called = True
            with (FOLDER / "calls").open("a") as calls:
                calls.write(f"waiting{number}\n")
            while not (FOLDER / f"go{number}").exists():
                time.sleep(0.01)
        return x + number

    return spec


waiting0, waiting1, waiting2, waiting3 = map(waiting_kernel, range(4))
