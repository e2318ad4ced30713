"""What the kernels of several suites are to compute: one more than their input."""

from roofwatch import KernelSpec, cases


def declare(name, launch, *, language="torch", n=64):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.normal(case["n"])},
        reference=lambda x: x + 1,
        cases=cases(shapes=[{"n": n}]),
        flop_count=lambda case: case["n"],
        memory_bytes=lambda case: 8 * case["n"],
    )
    spec.implementation(language)(launch)
    return spec
