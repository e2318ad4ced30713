"""Compiles what a case launches on this machine's GPU, so that the GPU does not wait for it later.

Nothing is launched, so any number of processes can do it at once.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from roofwatch.collector.compile.counted_calls import CountingMode
from roofwatch.collector.compile.dataless import call_for_target, call_with_or_without_data
from roofwatch.collector.compile.launches import compiling_for
from roofwatch.collector.compile.target_device import replaced
from roofwatch.collector.jobs.case_call import prepare_call
from roofwatch.spec import Case, Implementation, KernelSpec, UnsupportedError


def compile_ahead(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    target: str,
    *,
    launch: Callable[..., Any],
    device: str,
) -> None:
    """Fill the caches of Triton, NVRTC and TorchInductor with the code of one call.

    Args:
        spec: Declares the kernel.
        implementation: What is called.
        case: The sizes.
        target: Of this machine's GPU.
        launch: The launcher, in the form that is measured.
        device: Where torch.compile generates code for.

    Raises:
        UnsupportedError: torch.compile would time kernels to choose one.
        Exception: any exception that the implementation or its compiler raises.
    """
    if implementation.is_compiled:
        _require_no_search()
        with _without_inductor_launches():
            prepare_call(
                launch=launch,
                spec=spec,
                case=case,
                device=device,
            )()
        return
    mode = CountingMode()

    def call(*, has_data: bool) -> None:
        call_for_target(
            spec=spec,
            implementation=implementation,
            case=case,
            target=target,
            mode=mode,
            ranges={},
            has_data=has_data,
        )

    # the autotuner tries every configuration
    with compiling_for(target, most_configurations=None, is_for_launch=True):
        call_with_or_without_data(call)


def _require_no_search() -> None:
    """Refuse a search of Inductor, which would disturb timing on the same GPU."""
    import torch._inductor.config as inductor_config

    searches = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
    active = [name for name in searches if getattr(inductor_config, name, False)]
    if active:
        raise UnsupportedError(f"{active[0]} times kernels, which needs the GPU alone")


@contextlib.contextmanager
def _without_inductor_launches() -> Iterator[None]:
    """Compile TorchInductor's Triton kernels within the block; run and tune none.

    Source: torch/_inductor/runtime/triton_heuristics.py, which compiles a kernel when it loads it.
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    with replaced(
        owner=CachingAutotuner,
        name="run",
        value=lambda *_args, **_options: None,
    ):
        yield
