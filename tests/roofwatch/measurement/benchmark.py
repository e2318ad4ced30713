"""A benchmark file with one kernel, for repositories of tests."""

_TEXT = """
from {module} import {function}
from roofwatch import KernelSpec, cases

{kernel} = KernelSpec(
    name="{kernel}",
    inputs=lambda case, make: {{"x": make.normal(case["n"])}},
    reference=lambda x: x * 2.0,
    cases=cases(shapes=[{{"n": 8}}], dtypes=["float32"]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 8 * case["n"],
)


@{kernel}.implementation("torch")
def {kernel}_torch(x):
    return {function}(x)
"""


def benchmark(kernel: str, *, module: str, function: str) -> str:
    """The text of a file whose kernel doubles by a function of another module."""
    return _TEXT.format(kernel=kernel, module=module, function=function)
