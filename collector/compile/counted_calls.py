"""Counts what a call does in torch: operators, bytes, allocations and waits."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

from roofwatch.collector.compile.interval import Interval

_WAITING = frozenset(
    {
        "_local_scalar_dense",
        "nonzero",
        "nonzero_numpy",
        "is_nonzero",
        "equal",
        "masked_select",
        "_unique2",
        "unique_consecutive",
        "unique_dim",
    }
)
"""Operators that wait for the device, because the host needs a value or a size."""
_DEVICE_TYPES = frozenset({"cuda", "hip"})
_WITHOUT_WORK = frozenset(
    {"detach", "alias", "lift_fresh", "set_", "resize_", "record_stream", "_unsafe_view"}
)
_WITHOUT_READS = frozenset(
    {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
)
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
_MOST_PRODUCTS = 2**33
"""Multiplications of a matrix product that is really computed."""
_SAME_ELEMENTS = frozenset(
    {
        "_to_copy",
        "clone",
        "index_select",
        "gather",
        "cat",
        "stack",
        "flip",
        "repeat",
        "sort",
        "roll",
    }
)
"""Operators whose integer results are elements of their integer operands."""

_MOST_READ = 2**22
"""Elements of a tensor whose smallest and largest integer are looked up."""


@dataclass
class CallCounts:
    """What one call did; `by_name` and the bytes are those of torch's own operators."""

    by_name: Counter[str] = field(default_factory=Counter)
    read_bytes: int = 0
    written_bytes: int = 0
    allocation_count: int = 0
    allocated_bytes: int = 0
    peak_bytes: int = 0
    """Largest total of the tensors that the call made and that lived at once."""
    wait_count: int = 0
    """Times that the host waits for the device."""
    copy_count: int = 0
    """Copies between host and device."""
    live_bytes: int = 0


class CountingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is not typed
    """Counts operators while it is active, and follows the ranges of integers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is not typed
        self.counts = CallCounts()
        self._ranges: Any = WeakIdKeyDictionary()
        self._unfilled: Any = WeakIdKeyDictionary()
        """Storages with numbers that nothing has written, and what was computed from them."""
        self._live: dict[WeakIdRef, int] = {}

    def restart(self) -> None:
        """Count from here on; tensors that live now do not count."""
        self.counts = CallCounts()
        self._live.clear()

    def count_wait(self, name: str = "synchronize") -> None:
        self.counts.wait_count += 1
        self.counts.by_name[name] += 1

    # --- ranges of integers

    def set_range(self, tensor: torch.Tensor, limits: Interval) -> None:
        self._ranges[tensor.untyped_storage()] = limits

    def range_of(self, tensor: torch.Tensor) -> Interval | None:
        """Smallest and largest element of an integer tensor; None if they are not known."""
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            return None
        limits: Interval | None = self._ranges.get(tensor.untyped_storage())
        if limits is not None or not tensor.numel() or tensor.numel() > _MOST_READ:
            return limits
        # A small constant has data, even without the data of its case.
        data: Any = tensor
        if isinstance(tensor, FakeTensor):
            data = getattr(tensor, "constant", None)
        if data is None or tensor.untyped_storage() in self._unfilled:
            return None
        with no_dispatch():
            return Interval(int(data.min()), int(data.max()))

    # --- operators

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator without data, and count what it reads, writes and waits for."""
        name = func.overloadpacket.__name__
        # Backward passes run outside of the mode that changes devices.
        kwargs = {key: on_cpu(value) for key, value in (kwargs or {}).items()}
        launcher = _launcher_of(func)
        if launcher is not None:
            with self:  # its torch operators count too
                return launcher(*args, **kwargs)
        if name == "equal" and isinstance(args[0], FakeTensor):
            self.count_wait(name)
            return False
        if name == "_local_scalar_dense" and isinstance(args[0], FakeTensor):
            # The name that a user knows
            self.count_wait("item")
            return self._plausible_value(args[0])
        if name in _PRODUCTS and not isinstance(args[-1], FakeTensor):
            _refuse_large(name, args)
        result = func(*args, **kwargs)
        is_own = func.namespace in {"aten", "prims"}
        if is_own and not func.is_view and name not in _WITHOUT_WORK:
            self._count(name, [args, kwargs], result)
        return result

    def _plausible_value(self, tensor: FakeTensor) -> int | float | bool:
        """Return a value of a tensor without data, as if everything that is counted occurred."""
        if tensor.constant is not None:
            constant: int | float | bool = tensor.constant.item()
            return constant
        if tensor.dtype is torch.bool:
            return True
        limits = self.range_of(tensor)
        if limits is not None:
            return limits.high
        # 16 is a size that most launchers accept.
        return 1.0 if tensor.dtype.is_floating_point else 16

    def _count(self, name: str, arguments: Any, result: Any) -> None:
        """Add the traffic of one operator, and the memory of its new results."""
        operands = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        # A result that shares memory with an operand allocates nothing.
        operand_storages = {operand.untyped_storage()._cdata for operand in operands}
        new: list[torch.Tensor] = []
        for tensor in results:
            if tensor.untyped_storage()._cdata not in operand_storages:
                new.append(tensor)
                self._allocate(tensor)
        is_any_unfilled = any(operand.untyped_storage() in self._unfilled for operand in operands)
        if name in _WITHOUT_READS or is_any_unfilled:
            self._unfilled.update({tensor.untyped_storage(): True for tensor in new})
        if name not in _WITHOUT_READS:
            self.counts.by_name[name] += 1
            self.counts.read_bytes += sum(_bytes(operand) for operand in operands)
            self.counts.written_bytes += sum(_bytes(tensor) for tensor in results)
        if name in _WAITING:
            self.counts.wait_count += 1
        if name in _SAME_ELEMENTS:
            self._pass_on_range(operands, new)
        # A count is at most the number of elements.
        if name in {"sum", "count_nonzero"} and operands[0].dtype is torch.bool:
            for tensor in new:
                self.set_range(tensor, Interval(0, operands[0].numel()))

    def _pass_on_range(
        self,
        operands: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> None:
        """Let results have the range of all operands: for operators that only move elements."""
        ranges = [self.range_of(operand) for operand in operands]
        known_ranges = [limits for limits in ranges if limits is not None]
        # An operand without a range may have any elements.
        if not known_ranges or len(known_ranges) < len(ranges):
            return
        union = known_ranges[0]
        for limits in known_ranges[1:]:
            union = union.union(limits)
        for tensor in results:
            if not tensor.dtype.is_floating_point:
                self.set_range(tensor, union)

    def _allocate(self, tensor: torch.Tensor) -> None:
        """Count an allocation; it is live until its storage is freed."""
        storage = tensor.untyped_storage()
        size = int(storage.nbytes())
        counts = self.counts
        counts.allocation_count += 1
        counts.allocated_bytes += size
        counts.live_bytes += size
        counts.peak_bytes = max(counts.peak_bytes, counts.live_bytes)
        self._live[WeakIdRef(storage, self._free)] = size

    def _free(self, reference: Any) -> None:
        self.counts.live_bytes -= self._live.pop(reference, 0)


class TooMuchWorkError(Exception):
    """A product that a CPU would take minutes for."""


def _refuse_large(name: str, operands: Sequence[Any]) -> None:
    """Refuse a matrix product on the CPU that would take too long."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    left_factor, right_factor = tensors[-2:]
    if left_factor.numel() * right_factor.shape[-1] > _MOST_PRODUCTS:
        raise TooMuchWorkError(
            f"{name} of {tuple(left_factor.shape)} and {tuple(right_factor.shape)} on the CPU"
        )


def on_cpu(argument: object) -> object:
    """Replace a GPU by the CPU, where tensors without data are; keep everything else."""
    if isinstance(argument, torch.device) and argument.type in _DEVICE_TYPES:
        return torch.device("cpu")
    if isinstance(argument, str) and argument.partition(":")[0] in _DEVICE_TYPES:
        return "cpu"
    return argument


def _launcher_of(func: Any) -> Callable[..., Any] | None:
    """Return the Python function behind a custom operator; None for other operators.

    Without data, torch would call the function that only makes the results.
    """
    definition = OPDEFS.get(func._schema.name)
    if definition is None:
        return None
    functions = definition._backend_fns
    launcher: Callable[..., Any] = (
        functions.get("cuda") or functions.get(None) or definition._init_fn
    )
    return launcher


def _bytes(tensor: torch.Tensor) -> int:
    """Bytes of distinct elements: an expanded dimension is read once."""
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        distinct_count = int(length)
        if not stride:
            distinct_count = min(distinct_count, 1)
        count *= distinct_count
    return count * tensor.element_size()


@contextmanager
def counting_calls() -> Iterator[CountingMode]:
    mode = CountingMode()
    with mode:
        yield mode
