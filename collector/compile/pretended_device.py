"""Lets tensors say that they are on a GPU, on builds of torch without GPU support.

torch's autograd ends the process if a tensor is really on a device that the build does not support.
So tensors stay on the CPU: only code outside of torch sees the GPU as their device, and factory
functions that are given the GPU make CPU tensors.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from roofwatch.collector.compile.counted_calls import on_cpu
from roofwatch.collector.compile.target_device import pretending_driver, replaced

_GPU = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_WITH_REAL_DEVICE = frozenset({"torch", "triton", "numpy", "roofwatch"})
"""Packages that work with the data."""
_TO_HOST = frozenset({torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist})
_WITH_STORAGE = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})
_INDEXING = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})
"""Operators that copy an index from the host to the device, and wait for the copy."""


class _OnCpu(TorchFunctionMode):
    def __init__(self, on_wait: Callable[[], None]) -> None:
        super().__init__()
        self._on_wait = on_wait
        self._on_host: Any = WeakIdKeyDictionary()
        """Storages of tensors that would lie in the host's memory."""

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer as a tensor on a GPU does, and note a copy between host and device as a wait."""
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]  # a descriptor
            return True
        if func is torch.Tensor.get_device:
            return 0
        if func is torch.Tensor.cuda:
            self._on_host.pop(args[0].untyped_storage(), None)
            return args[0]
        keyword_arguments = kwargs or {}
        if func in _TO_HOST or (
            func is torch.Tensor.to and _names_cpu([*args[1:], *keyword_arguments.values()])
        ):
            self._on_wait()
        if func in _INDEXING and self._is_copied(args[1], args[0]):
            self._on_wait()
        moved = [on_cpu(argument) for argument in args]
        result = func(*moved, **_on_cpu(keyword_arguments))
        self._follow(func, args, keyword_arguments, result)
        return result

    def _is_on_host(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage() in self._on_host

    def _is_copied(self, index: object, indexed: torch.Tensor) -> bool:
        """Whether an index is on the host, and what it indexes is not."""
        if any(map(self._is_on_host, _tensors(indexed))):
            return False
        # torch reads an index without dims on the host
        return any(tensor.dim() and self._is_on_host(tensor) for tensor in _tensors(index))

    def _follow(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: object,
    ) -> None:
        """Note whether results lie in the host's memory: those of a factory without a device, and
        what is computed from them alone.
        """
        is_moved = any(on_cpu(leaf) is not leaf for leaf in tree_leaves([args, kwargs]))
        operands = _tensors([args, kwargs])
        if operands:
            is_on_host = all(map(self._is_on_host, operands))
        else:
            is_on_host = func in _device_constructors()
        for tensor in _tensors(result):
            # a tensor that is moved to the pretended device stays where it is
            if is_moved:
                self._on_host.pop(tensor.untyped_storage(), None)
            elif is_on_host:
                self._on_host[tensor.untyped_storage()] = True


class _FactoriesOnCpu(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is not typed
    """Makes tensors on the CPU in backward passes too, where torch leaves other modes out."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*args, **_on_cpu(kwargs or {}))


def _on_cpu(keyword_arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: on_cpu(value) for name, value in keyword_arguments.items()}


def _names_cpu(arguments: Sequence[object]) -> bool:
    return any(argument in ("cpu", _CPU) for argument in arguments if _is_device(argument))


def _is_device(argument: object) -> bool:
    return isinstance(argument, (str, torch.device))


def _tensors(values: object) -> list[torch.Tensor]:
    """Tensors with a storage: others, such as sparse ones, consist of several."""
    return [leaf for leaf in tree_leaves(values) if type(leaf) in _WITH_STORAGE]


@contextlib.contextmanager
def as_on_gpu(target: str) -> Iterator[None]:
    """Pretend within the block that a target is there, and for tensors that hold data that they
    are on it.
    """
    with (
        pretending_driver(target),
        replaced(
            owner=torch.cuda,
            name="_lazy_init",
            value=lambda: None,
        ),
        # in a backward pass no mode sees it
        replaced(
            owner=torch,
            name="tensor",
            value=_without_device(torch.tensor),
        ),
        pretending_gpu(lambda: None),
        _FactoriesOnCpu(),  # type: ignore[no-untyped-call]  # torch is not typed
    ):
        yield


@contextlib.contextmanager
def pretending_gpu(on_wait: Callable[[], None]) -> Iterator[None]:
    """Pretend within the block; `on_wait` is called when data goes to the host."""
    of_tensors = torch._C.TensorBase.device.__get__
    with (
        replaced(
            owner=FakeTensor,
            name="device",
            value=_pretended(vars(FakeTensor)["device"].fget),
        ),
        replaced(
            owner=torch.Tensor,
            name="device",
            value=_pretended(of_tensors),
        ),
        _OnCpu(on_wait),
    ):
        yield


def _without_device(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        return factory(*args, **{name: on_cpu(value) for name, value in kwargs.items()})

    return make


def _pretended(real_device: Callable[[Any], torch.device]) -> property:
    """A `device` that says CUDA to launchers and the truth to torch and Triton."""

    def device(self: torch.Tensor) -> torch.device:
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        if caller in _WITH_REAL_DEVICE:
            return real_device(self)
        return _GPU

    return property(device)
