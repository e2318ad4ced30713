"""The kernels that come with roofwatch."""

from kernels.errors import KernelError
from roofwatch import KernelSpec


def suite() -> tuple[KernelSpec, ...]:
    """Every kernel of ours. They are imported here, since each brings torch and Triton along."""
    from kernels.attention import attention_spec
    from kernels.matmul import matmul_spec
    from kernels.rms_norm import rms_norm_spec
    from kernels.softmax import softmax_spec
    from kernels.swiglu import swiglu_spec

    return softmax_spec, rms_norm_spec, swiglu_spec, matmul_spec, attention_spec


def find_kernel(name: str) -> KernelSpec:
    """Look one of our kernels up.

    Raises:
        KernelError: no such kernel; the message lists those there are.
    """
    specs = {spec.name: spec for spec in suite()}
    if name not in specs:
        raise KernelError(f"no kernel is called {name!r}; choose from {', '.join(specs)}")
    return specs[name]
