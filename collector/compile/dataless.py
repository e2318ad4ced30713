"""Calls an implementation on tensors without data, as if the GPU of a target were there."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from roofwatch.collector.accuracy.evaluation import (
    differentiable,
    differentiated_names,
    inputs_of,
    outputs_by_name,
)
from roofwatch.collector.compile.counted_calls import CountingMode, TooMuchWorkError
from roofwatch.collector.compile.interval import Interval
from roofwatch.collector.compile.pretended_device import pretending_gpu
from roofwatch.collector.compile.target_device import pretending_driver, replaced
from roofwatch.model.errors import ToolchainError
from roofwatch.spec import (
    Case,
    Implementation,
    InputMaker,
    KernelSpec,
    UnsupportedError,
)

_Result = TypeVar("_Result")
_MOST_DATA = 2**32
"""Bytes of inputs that are allocated for a launcher that reads integers."""
_ADDRESS = 2**20
"""Of every tensor without data; divisible by 16 like those of torch's allocators."""


class TooLargeError(Exception):
    """The inputs are too large for any GPU."""


class _RangedInputMaker(InputMaker):
    """Tells the mode that counts which integers it draws."""

    def __init__(self, case: Case, mode: CountingMode) -> None:
        super().__init__(case, "cpu", only_integers=True)
        self._mode = mode

    def _ranged(self, tensor: torch.Tensor, low: int, high: int) -> torch.Tensor:
        self._mode.set_range(tensor, Interval(low, high))
        return tensor

    def integers(self, *shape: int, high: int, low: int = 0, dtype: str = "int64") -> torch.Tensor:
        drawn = super().integers(*shape, high=high, low=low, dtype=dtype)
        return self._ranged(drawn, low, high - 1)

    def permutation(self, length: int, dtype: str = "int64") -> torch.Tensor:
        return self._ranged(
            tensor=super().permutation(length, dtype),
            low=0,
            high=max(length - 1, 0),
        )

    def routing(
        self,
        tokens: int,
        experts: int,
        top_k: int,
        load: str = "uniform",
    ) -> torch.Tensor:
        """As the parent's, with the range of the experts' numbers."""
        return self._ranged(
            tensor=super().routing(
                tokens=tokens,
                experts=experts,
                top_k=top_k,
                load=load,
            ),
            low=0,
            high=experts - 1,
        )


@contextlib.contextmanager
def without_data() -> Iterator[None]:
    """Make tensors without data within the block; their addresses are aligned like real ones."""

    def address(self: FakeTensor) -> int:
        return _ADDRESS + int(self.storage_offset()) * self.element_size()

    # a size that a launcher refuses is no error
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with (
            replaced(
                owner=FakeTensor,
                name="data_ptr",
                value=address,
            ),
            FakeTensorMode(allow_non_fake_inputs=True),
        ):
            yield
    finally:
        log.setLevel(level)


def call_for_target(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    target: str,
    *,
    mode: CountingMode,
    before_backward: Callable[[], None] | None = None,
    ranges: Mapping[str, Interval],
    has_data: bool = False,
    max_bytes: int = sys.maxsize,
) -> None:
    """Call an implementation once, and its backward pass in the `bwd` direction.

    Args:
        spec: Declares the kernel.
        implementation: What to call.
        case: The sizes.
        target: The GPU that answers the launcher's questions.
        mode: Counts the operators of all passes.
        before_backward: Called between the forward and the backward pass.
        ranges: Of the integers in inputs, by name.
        has_data: Allocate the inputs, for launchers that read integers.

        max_bytes: Of all inputs.

    Raises:
        TooLargeError: the inputs are larger.
        Exception: any exception that the implementation raises.
    """
    with contextlib.ExitStack() as stack:
        # without data a huge case takes no memory
        if not has_data:
            stack.enter_context(without_data())
        stack.enter_context(mode)
        inputs = inputs_of(spec, case, _RangedInputMaker(case, mode))
        for name, limits in ranges.items():
            mode.set_range(inputs[name], limits)
        most_bytes = max_bytes
        if has_data:
            most_bytes = min(max_bytes, _MOST_DATA)
        if sum(_size(value) for value in inputs.values()) > most_bytes:
            raise TooLargeError(f"the inputs have more than {most_bytes:,} bytes")
        stack.enter_context(pretending_driver(target))
        stack.enter_context(_without_dynamo())
        if not has_data:
            stack.enter_context(pretending_gpu(mode.count_wait))
        names = differentiated_names(spec, case, inputs)
        # operators that make the inputs are not the kernel's
        mode.restart()
        with contextlib.nullcontext() if names else torch.no_grad():
            outputs = outputs_by_name(implementation.launch(**inputs))
        if names:
            roots = differentiable(outputs)
            upstream = [torch.empty_like(root) for root in roots]
            if before_backward is not None:
                before_backward()
            chosen = [inputs[name] for name in names]
            torch.autograd.grad(roots, chosen, upstream, allow_unused=True)


def call_with_or_without_data(call: Callable[..., _Result]) -> _Result:
    """Call without data, and with data if that fails: some launchers read integers.

    Raises:
        Exception: the failure with data; that without data if the inputs do not fit into memory.
    """
    had_dynamo = _has_dynamo()
    try:
        return call(has_data=False)
    except (UnsupportedError, ToolchainError):
        raise
    except Exception as without_data:  # noqa: BLE001  a launcher raises many types
        if _has_dynamo() and not had_dynamo:
            return call_with_or_without_data(call)  # the launcher has imported it
        try:
            return call(has_data=True)
        except (MemoryError, TooMuchWorkError, TooLargeError):
            raise without_data from None
        except RuntimeError as error:
            if "allocate" in str(error):
                raise without_data from None
            raise


def _has_dynamo() -> bool:
    return "torch._dynamo" in sys.modules


def _without_dynamo() -> contextlib.AbstractContextManager[object]:
    """Run functions that a package compiles with torch.compile as they are written."""
    if not _has_dynamo():
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def has_inputs(spec: KernelSpec, case: Case) -> bool:
    """Return whether a case has inputs; a captured launch has stand-ins for its arguments."""
    with without_data():
        try:
            maker = InputMaker(case, "cpu", only_integers=True)
            return bool(spec.inputs(case, maker))
        except Exception:  # noqa: BLE001  inputs that need data
            return True


def _size(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return 0
