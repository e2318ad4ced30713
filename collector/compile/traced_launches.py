"""Records what a launcher launches, with arguments, grid and Triton's IR; compiles no code."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from roofwatch.collector.compile.autotuned import (
    every_chosen_configuration,
    name_of_tuned,
    tuning_with,
)
from roofwatch.collector.compile.interval import Interval
from roofwatch.collector.compile.ir import Function
from roofwatch.collector.compile.launch_arguments import (
    Part,
    bound_options,
    bytes_of,
    integers_of,
    parts_of,
    tensors_of,
    three,
)
from roofwatch.collector.compile.target_device import active_driver, replaced, target_driver
from roofwatch.collector.compile.ttir import parse_function
from roofwatch.collector.relaunch import LaunchedKernel
from roofwatch.cuda import CudaKernel
from roofwatch.model.machine import Configuration

_MAX_FUNCTION_NAME = 400
_MAX_MESSAGE = 2_000
_MOST_LAUNCHES = 2_000
"""A call with more is a loop over elements, whose launches are equal but for their addresses."""
RangeOf = Callable[[torch.Tensor], Interval | None]
"""Smallest and largest integer of a tensor; None if they are unknown."""


class TooManyLaunchesError(Exception):
    """A call has more launches than are analysed."""


@dataclass
class TracedLaunch:
    """One launch of a jitted function; `message` says why its IR was not made."""

    function: str
    module: str
    """Which defines it."""
    grid: tuple[int, int, int]
    arguments: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, Interval] = field(default_factory=dict)
    """Of the integers in tensors among the arguments."""
    ir: Function | None = None
    message: str | None = None
    tensor_bytes: int = 0
    """Of the tensors among the arguments, each counted once."""
    is_triton: bool = True


class IrCache:
    """Keeps the IR of functions by their specialisation, for launches at many sizes."""

    def __init__(self) -> None:
        self._functions: dict[tuple[object, str], Function] = {}

    def at(self, function: object, key: str, make: Callable[[], str]) -> Function:
        if (function, key) not in self._functions:
            self._functions[function, key] = parse_function(make())
        return self._functions[function, key]


@contextlib.contextmanager
def tracing_launches(
    target: str,
    *,
    cache: IrCache,
    range_of: RangeOf = lambda _tensor: None,
    most_configurations: int | None = None,
) -> Iterator[list[TracedLaunch]]:
    """Record each launch within the block and launch nothing; yield the list of launches."""
    from triton.runtime.jit import JITFunction

    launches: list[TracedLaunch] = []
    tuned: list[Configuration] = []

    def trace_only(
        self: Any,
        *args: Any,
        grid: Any,
        warmup: bool,
        **kwargs: Any,
    ) -> LaunchedKernel:
        constants = {parameter.name for parameter in self.params if parameter.is_constexpr}
        if warmup:  # it is compiled only
            return LaunchedKernel(
                function=self,
                args=args,
                kwargs=kwargs,
                constants=constants,
            )
        if len(launches) >= _MOST_LAUNCHES:
            raise TooManyLaunchesError(f"more than {_MOST_LAUNCHES:,} launches in one call")
        # One launch for each configuration of an autotuner, told apart by its name.
        name = name_of_tuned(self.fn.__name__, tuned)[:_MAX_FUNCTION_NAME]
        launches.append(
            _traced(
                function=self,
                name=name,
                args=args,
                kwargs=kwargs,
                grid=grid,
                cache=cache,
                range_of=range_of,
            )
        )
        return LaunchedKernel(
            function=self,
            args=args,
            kwargs=kwargs,
            constants=constants,
        )

    def trace_cuda(
        self: CudaKernel,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],  # noqa: ARG001  CudaKernel's signature
        args: Sequence[object],
        **_options: object,
    ) -> None:
        tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
        launches.append(
            TracedLaunch(
                function=self.name,
                module="",
                grid=three(grid),
                tensor_bytes=bytes_of(tensors),
                is_triton=False,
            )
        )

    with (
        replaced(
            owner=JITFunction,
            name="run",
            value=trace_only,
        ),
        tuning_with(every_chosen_configuration(tuned, most_configurations)),
        replaced(
            owner=CudaKernel,
            name="launch",
            value=trace_cuda,
        ),
        active_driver(target_driver(target)),
    ):
        yield launches


def _traced(
    function: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    grid: Any,
    cache: IrCache,
    range_of: RangeOf,
) -> TracedLaunch:
    launch = TracedLaunch(
        function=name,
        module=str(function.fn.__module__),
        grid=(1, 1, 1),
    )
    function.device_caches.clear()  # its key is the device number, which is 0 for every target
    try:
        bound, parts = _specialise(
            function=function,
            args=args,
            kwargs=kwargs,
            cache=cache,
            launch=launch,
        )
        if callable(grid):
            grid = grid(bound)
        launch.grid = three(grid)
        launch.arguments = integers_of(parts)
        tensors = tensors_of(parts)
        launch.tensor_bytes = bytes_of(list(tensors.values()))
        ranges = {key: range_of(tensor) for key, tensor in tensors.items()}
        launch.ranges = {key: limits for key, limits in ranges.items() if limits is not None}
    except Exception as error:  # noqa: BLE001  the compiler raises many types
        launch.message = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
    finally:
        function.device_caches.clear()
    return launch


def _specialise(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cache: IrCache,
    launch: TracedLaunch,
) -> tuple[dict[str, Any], list[Part]]:
    """Specialise a function as a launch does and make its IR; return the arguments whole and in
    parts.

    Source: `JITFunction.run` and `triton.compile`, up to the first stage.
    """
    from triton._C.libtriton import ir
    from triton.compiler import ASTSource

    *_, target, backend, binder = function.device_caches[0]
    kwargs = bound_options(function, kwargs)
    bound, specialization, options = binder(*args, **kwargs)
    options, signature, constants, attributes = function._pack_args(
        backend, kwargs, bound, specialization, options
    )

    def make() -> str:
        source = ASTSource(function, signature, constants, attributes)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        generators = backend.get_codegen_implementation(options)
        module = source.make_ir(target, options, generators, backend.get_module_map(), context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        return str(stages["ttir"](module, dict(options.__dict__)))

    in_order = sorted(options.__dict__.items(), key=str)
    key = repr((target, signature, constants, attributes, in_order))
    launch.ir = cache.at(function, key, make)
    parts = list(parts_of(bound, signature))
    _name_arguments(launch.ir, parts)
    return dict(bound), parts


def _name_arguments(ir: Function, parts: Sequence[Part]) -> None:
    """Name the arguments of the IR after the parameters, if they correspond one to one."""
    names = [part.name for part in parts if part.kind != "constexpr"]
    if len(names) == len(ir.arguments):
        for value, name in zip(ir.arguments, names, strict=True):
            value.name = f"%{name}"
