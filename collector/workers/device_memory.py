"""GPU memory that two processes map, passed from one to the other as a file descriptor.

CUDA's older IPC handles cannot cross PID namespaces, and a candidate's process has its own
(openucx/ucx#11514). Source: CUDA driver API, virtual memory management.
"""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from roofwatch.model.errors import CollectorError

_PINNED = 1
_POSIX_FILE_DESCRIPTOR = 1
_ON_DEVICE = 1
_READ_AND_WRITE = 3
_MINIMUM_GRANULARITY = 0
_NO_FLAGS = ctypes.c_ulonglong(0)
_LIBRARY = "libcuda.so.1"


class _Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp; the last eight bytes are flags."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("requested_handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32_handle_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@dataclass(frozen=True)
class DeviceMemory:
    """GPU memory, mapped into this process until it ends."""

    address: int
    byte_count: int

    def as_tensor(self) -> Any:
        """The memory as a tensor of uint8, shape [byte_count]."""
        import torch

        byte_count = self.byte_count
        address = self.address

        class Memory:
            __cuda_array_interface__: ClassVar = {
                "shape": (byte_count,),
                "typestr": "|u1",
                "data": (address, False),
                "version": 3,
            }

        return torch.as_tensor(Memory(), device="cuda")


def create_device_memory(byte_count: int, device: int) -> tuple[DeviceMemory, int]:
    """Allocate memory on a device whose context is current.

    Returns:
        The memory, and a file descriptor by which another process opens it. The caller closes it.

    Raises:
        CollectorError: the driver refuses.
    """
    driver = ctypes.CDLL(_LIBRARY)
    properties = _properties(device)
    size = _allocation_bytes(driver, properties, byte_count)
    handle = ctypes.c_ulonglong()
    _call(
        driver.cuMemCreate,
        ctypes.byref(handle),
        size,
        ctypes.byref(properties),
        _NO_FLAGS,
    )
    descriptor = ctypes.c_int()
    _call(
        driver.cuMemExportToShareableHandle,
        ctypes.byref(descriptor),
        handle,
        ctypes.c_int(_POSIX_FILE_DESCRIPTOR),
        _NO_FLAGS,
    )
    try:
        address = _map(
            driver=driver,
            handle=handle,
            size=size,
            device=device,
        )
    except CollectorError:
        os.close(descriptor.value)
        raise
    return DeviceMemory(address, byte_count), descriptor.value


def open_device_memory(descriptor: int, byte_count: int, device: int) -> DeviceMemory:
    """Map memory that another process created; the descriptor can be closed afterwards.

    Raises:
        CollectorError: the driver refuses.
    """
    driver = ctypes.CDLL(_LIBRARY)
    size = _allocation_bytes(driver, _properties(device), byte_count)
    handle = ctypes.c_ulonglong()
    _call(
        driver.cuMemImportFromShareableHandle,
        ctypes.byref(handle),
        ctypes.c_void_p(descriptor),
        ctypes.c_int(_POSIX_FILE_DESCRIPTOR),
    )
    return DeviceMemory(
        _map(
            driver=driver,
            handle=handle,
            size=size,
            device=device,
        ),
        byte_count,
    )


def _properties(device: int) -> _AllocationProperties:
    return _AllocationProperties(
        type=_PINNED,
        requested_handle_types=_POSIX_FILE_DESCRIPTOR,
        location=_Location(type=_ON_DEVICE, id=device),
    )


def _allocation_bytes(
    driver: ctypes.CDLL,
    properties: _AllocationProperties,
    byte_count: int,
) -> ctypes.c_size_t:
    """Round a size up to what the driver allocates; the same in both processes."""
    granularity = ctypes.c_size_t()
    _call(
        driver.cuMemGetAllocationGranularity,
        ctypes.byref(granularity),
        ctypes.byref(properties),
        ctypes.c_int(_MINIMUM_GRANULARITY),
    )
    block_count = -(-byte_count // granularity.value)
    return ctypes.c_size_t(block_count * granularity.value)


def _map(
    driver: ctypes.CDLL,
    handle: ctypes.c_ulonglong,
    size: ctypes.c_size_t,
    device: int,
) -> int:
    """Return the address at which an allocation can be read and written.

    The mapping keeps the memory after the handle is released.
    """
    address = ctypes.c_ulonglong()
    no_alignment = ctypes.c_size_t(0)
    no_offset = ctypes.c_size_t(0)
    any_address = ctypes.c_ulonglong(0)
    access = _Access(location=_Location(type=_ON_DEVICE, id=device), flags=_READ_AND_WRITE)
    _call(
        driver.cuMemAddressReserve,
        ctypes.byref(address),
        size,
        no_alignment,
        any_address,
        _NO_FLAGS,
    )
    _call(
        driver.cuMemMap,
        address,
        size,
        no_offset,
        handle,
        _NO_FLAGS,
    )
    _call(
        driver.cuMemSetAccess,
        address,
        size,
        ctypes.byref(access),
        ctypes.c_size_t(1),
    )
    _call(driver.cuMemRelease, handle)
    return address.value


def _call(function: Callable[..., int], *arguments: Any) -> None:
    status = function(*arguments)
    if status:
        name = getattr(function, "__name__", "the driver")
        raise CollectorError(
            f"this GPU cannot share memory with another process ({name}: CUDA error {status})"
        )
