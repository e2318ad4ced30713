"""A kernel that is one launch of a jitted Triton function: compiled by `roofwatch static`, never run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roofwatch.spec.case import UnsupportedError, cases
from roofwatch.spec.kernel_spec import KernelSpec
from roofwatch.spec.tolerance import TOLERANCES

if TYPE_CHECKING:
    import torch

_POINTER_ELEMENTS = 64


def pointer(dtype: str, *, aligned: bool = True) -> torch.Tensor:
    """Make a tensor that Triton specialises as a pointer to a dtype, with an address divisible by 16 if aligned."""
    import torch

    # torch aligns allocations; one element further, the address is divisible by the element size only
    elements = torch.empty(_POINTER_ELEMENTS + 1, dtype=getattr(torch, dtype))
    return elements[:-1] if aligned else elements[1:]


def jit_launch(
    name: str, function: Any, arguments: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> KernelSpec:
    """Declare a launch of a jitted, perhaps autotuned function as a kernel with one case and without a reference.

    Triton specialises integers among the arguments by their size, by divisibility by 16 and by equality to 1. Options
    are those of the compiler, such as `num_warps`.
    """
    parameters, tuned = _parameters(function)
    constexprs = {key: arguments.get(key) for key, one in parameters.items() if "constexpr" in str(one.annotation)}
    lengths = {key: value for key, value in constexprs.items() if type(value) is int and value >= 0}
    dtypes = [str(value.dtype).removeprefix("torch.") for value in arguments.values() if hasattr(value, "data_ptr")]
    dtypes = [dtype for dtype in dtypes if dtype in TOLERANCES]

    def reference() -> torch.Tensor:
        raise UnsupportedError(f"{name} is a launch without a reference")

    def launch() -> torch.Tensor:
        if unknown := sorted(set(arguments) - parameters.keys()):
            raise UnsupportedError(f"{name}: the function has no parameter {unknown[0]!r}, but {', '.join(parameters)}")
        required = [key for key, one in parameters.items() if one.default is one.empty and key not in tuned]
        if missing := [key for key in required if key not in arguments]:
            raise UnsupportedError(f"{name}: the launch has no value for {missing[0]!r}")
        function[(1,)](**arguments, **(options or {}))
        return pointer("float32")

    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {},  # noqa: ARG005  signature of a spec's function
        reference=reference,
        cases=cases(shapes=[lengths or {"programs": 1}], dtypes=dtypes[:1] or ["float32"]),
        flop_count=lambda case: 0.0,  # noqa: ARG005
        memory_bytes=lambda case: 0.0,  # noqa: ARG005
    )
    spec.implementation("triton", directions=["fwd"])(launch)
    return spec


def _parameters(function: Any) -> tuple[Mapping[str, inspect.Parameter], set[str]]:
    """Parameters of a jitted function, and the names of those that an autotuner or a heuristic around it sets."""
    tuned: set[str] = set()
    while hasattr(function, "fn"):
        tuned |= set(getattr(function, "values", ()))
        tuned |= {key for config in getattr(function, "configs", ()) for key in config.kwargs}
        function = function.fn
    return inspect.signature(function).parameters, tuned
