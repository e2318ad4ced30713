"""Lets tensors without data say that they are on a GPU, on builds of torch without GPU support.

torch's autograd ends the process if a tensor is really on a device that the build does not support.
So tensors stay on the CPU: only code outside of torch that asks for their device is told the GPU,
and factory functions that are given the GPU make CPU tensors.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from roofwatch.collector.compile.counted_calls import on_cpu
from roofwatch.collector.compile.target_device import replaced

_GPU = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_TO_HOST = frozenset({torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist})


class _OnCpu(TorchFunctionMode):
    def __init__(self, on_wait: Callable[[], None]) -> None:
        super().__init__()
        self._on_wait = on_wait

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]  # a descriptor
            return True
        if func is torch.Tensor.get_device:
            return 0
        if func is torch.Tensor.cuda:
            return args[0]
        given = kwargs or {}
        if func in _TO_HOST or (
            func is torch.Tensor.to and _names_cpu([*args[1:], *given.values()])
        ):
            self._on_wait()
        moved = [on_cpu(argument) for argument in args]
        return func(*moved, **{name: on_cpu(value) for name, value in given.items()})


def _names_cpu(arguments: Sequence[object]) -> bool:
    return any(argument in ("cpu", _CPU) for argument in arguments if _is_device(argument))


def _is_device(argument: object) -> bool:
    return isinstance(argument, (str, torch.device))


@contextlib.contextmanager
def pretending_gpu(on_wait: Callable[[], None]) -> Iterator[None]:
    """Pretend within the block; `on_wait` is called when data goes to the host."""
    device_of = FakeTensor.device.fget

    def device(self: FakeTensor) -> torch.device:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller == "torch" or caller.startswith("torch."):
            real: torch.device = device_of(self)
            return real
        return _GPU

    with replaced(FakeTensor, "device", property(device)), _OnCpu(on_wait):
        yield
