"""Compiles the launches of Triton functions for a GPU that is not present."""

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from roofwatch.collector.compile.autotuned import (
    every_chosen_configuration,
    name_of_tuned,
    tuning_with,
)
from roofwatch.collector.compile.cuda_launches import replaced
from roofwatch.collector.compile.launch import Compiled, Launch, TunedFunction
from roofwatch.collector.compile.launch_arguments import (
    LaunchShape,
    bound_options,
    parts_of,
    shape_of,
)
from roofwatch.collector.compile.target_device import active_driver, target_driver
from roofwatch.collector.relaunch import LaunchedKernel
from roofwatch.model.errors import ToolchainError
from roofwatch.model.machine import Configuration, Outcome

_OPTION_NAMES = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "enable_fp_fusion",
    "enable_reflect_ftz",
    "ptx_version",
    "ptx_options",
    "launch_pdl",
    "launch_cooperative_grid",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "allow_flush_denorm",
    "schedule_hint",
    "sanitize_overflow",
    "debug",
    "instrumentation_mode",
    "ir_override",
)
"""Options of all Triton back ends that change the code."""


_MAX_FUNCTION_NAME = 400


_LINE_INFORMATION = "TRITON_DISABLE_LINE_INFO"


_NS_PER_US = 1_000


_BLACKWELL = 100


@contextlib.contextmanager
def compiling_triton(
    target: str,
    launches: list[Launch],
    deadline_s: float,
    most_configurations: int | None,
    is_for_launch: bool,
) -> Iterator[None]:
    import triton
    from triton.runtime.jit import JITFunction

    original_run = JITFunction.run
    stage_ns: dict[str, dict[str, int]] = {}
    tuned: list[Configuration] = []

    def note_times(*, metadata: dict[str, Any], times: Any, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            kernel_hash = metadata["hash"]
            stages = (("ir", times.ir_initialization), *times.lowering_stages)
            stage_ns[kernel_hash] = {name: time_us * _NS_PER_US for name, time_us in stages}

    def compile_only(
        self: Any,
        *args: Any,
        grid: Any,
        warmup: bool,
        **kwargs: Any,
    ) -> LaunchedKernel:
        constants = {parameter.name for parameter in self.params if parameter.is_constexpr}
        launched = LaunchedKernel(
            function=self,
            args=args,
            kwargs=kwargs,
            constants=constants,
        )
        if warmup:  # it is launched afterwards, with its true grid
            return launched
        launch = Launch(
            name_of_tuned(self.fn.__name__, tuned)[:_MAX_FUNCTION_NAME],
            {name: _plain(kwargs[name]) for name in _OPTION_NAMES if name in kwargs},
        )
        if tuned:
            launch.tuned = TunedFunction(self.fn.__name__, dict(tuned[0]))
        launches.append(launch)
        if time.monotonic() > deadline_s:
            launch.outcome = Outcome.TIMED_OUT
            launch.message = "not compiled within the time limit; raise it with --timeout"
            return launched
        self.device_caches.clear()  # its key is the device number, which is 0 for every target
        try:
            kernel = original_run(
                self,
                *args,
                grid=grid,
                warmup=True,
                **kwargs,
            )
            launch.configuration.update(
                _configuration(
                    function=self,
                    args=args,
                    kwargs=kwargs,
                    kernel=kernel,
                )
            )
        except Exception as error:  # noqa: BLE001  the compiler raises many types
            _raise_if_tool_is_missing(error)
            launch.fail(error)
        else:
            shape = _launch_shape(
                function=self,
                args=args,
                kwargs=kwargs,
                grid=grid,
            )
            launch.compiled = _compiled_by_triton(kernel, stage_ns.get(kernel.hash, {}), shape)
            if is_for_launch:
                _build_launcher(kernel)
        finally:
            self.device_caches.clear()
        return launched

    with (
        replaced(
            owner=JITFunction,
            name="run",
            value=compile_only,
        ),
        tuning_with(every_chosen_configuration(tuned, most_configurations)),
        active_driver(target_driver(target)),
        triton.knobs.compilation.scope(),
    ):
        triton.knobs.compilation.listener = note_times
        if not is_for_launch:
            triton.knobs.compilation.disable_line_info = True
        yield


def _build_launcher(kernel: Any) -> None:
    """Build the C function that launches a kernel, which Triton before 3.7 has for each signature.

    The launch itself reports a missing compiler or driver.
    """
    from triton.backends.nvidia import driver

    if "cubin" in kernel.asm and hasattr(driver, "make_launcher"):
        with contextlib.suppress(
            AssertionError, ImportError, OSError, RuntimeError, subprocess.SubprocessError
        ):
            driver.CudaLauncher(kernel.src, kernel.metadata)


def _raise_if_tool_is_missing(error: Exception) -> None:
    # the message of triton/knobs.py if a program of the compiler is missing
    if isinstance(error, RuntimeError) and str(error).startswith("Cannot find "):
        raise ToolchainError(
            f"{error}, which comes with Triton: install Triton again with pip install "
            f"--force-reinstall triton"
        ) from error


def _launch_shape(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    grid: Any,
) -> LaunchShape | None:
    """Bind the arguments as `JITFunction.run` does, which has just compiled the function."""
    *_, backend, binder = function.device_caches[0]
    options = bound_options(function, kwargs)
    try:
        bound, specialization, parsed = binder(*args, **options)
        _, signature, _, _ = function._pack_args(backend, options, bound, specialization, parsed)
        parts = list(parts_of(bound, signature))
        if callable(grid):
            grid = grid(dict(bound))
        return shape_of(parts, grid)
    except Exception:  # noqa: BLE001  a launcher's grid may need data that is not there
        return None


def _compiled_by_triton(
    kernel: Any,
    compile_ns: dict[str, int],
    shape: LaunchShape | None,
) -> Compiled:
    import triton

    metadata = kernel.metadata
    is_nvidia = "cubin" in kernel.asm
    if is_nvidia:
        binary = kernel.asm["cubin"]
        assembly = None
    else:
        binary = kernel.asm["hsaco"]
        assembly = kernel.asm["amdgcn"]
    toolchain = {"triton": metadata.triton_version}  # contains LLVM
    if is_nvidia:
        tools = triton.knobs.nvidia
        if metadata.target.arch >= _BLACKWELL:
            tool = tools.ptxas_blackwell
        else:
            tool = tools.ptxas
        toolchain["ptxas"] = _ptxas_version(tool.path) or tool.version
    return Compiled(
        identity=kernel.hash,
        binary=binary,
        symbol=metadata.name,
        thread_count=metadata.num_warps * metadata.target.warp_size,
        dynamic_shared_bytes=int(metadata.shared),
        toolchain=toolchain,
        compile_ns=compile_ns,
        assembly=assembly,
        tensor_memory_columns=getattr(metadata, "tmem_size", None),
        ir=kernel.asm.get("ttir"),
        shape=shape,
    )


@cache
def _ptxas_version(path: str) -> str | None:
    """Version with patch level, for example 12.8.93."""
    listing = subprocess.run(
        [path, "--version"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    match = re.search(r"\bV(\d+\.\d+\.\d+)", listing)
    return match and match[1]


def _plain(value: Any) -> str | int | float | bool | None:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


def _configuration(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    kernel: Any,
) -> Configuration:
    """Collect constexprs, options of the back end,
    and environment variables that change the code.
    """
    from triton._C.libtriton import get_cache_invalidating_env_vars

    arguments = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
    constants = {
        parameter.name: _plain(arguments.get(parameter.name, parameter.default))
        for parameter in function.params
        if parameter.is_constexpr
    }
    options = {
        name: _plain(getattr(kernel.metadata, name))
        for name in _OPTION_NAMES
        if hasattr(kernel.metadata, name)
    }
    knobs = {
        name: str(value)
        for name, value in get_cache_invalidating_env_vars().items()
        if name != _LINE_INFORMATION
    }
    return {**constants, **options, **knobs}
