"""Checks of operands before a launch: kernels read raw pointers, so wrong operands would be read
silently.

Each check raises KernelError with the kernel, the operand and a call that fixes it.
"""

import torch
from torch import Tensor

from roofwatch.kernels.building_blocks.errors import KernelError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def require_operands(
    kernel: str,
    *,
    dims: int | None = None,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    **operands: Tensor,
) -> None:
    """Require operands on one device, with a supported dtype, contiguous along the last dim.

    Args:
        kernel: Named in the message.
        dims: Required number of dims of every operand.
        dtypes: Supported dtypes.
        operands: By parameter name.
    """
    first_name, first = next(iter(operands.items()))
    for name, operand in operands.items():
        if operand.dtype not in dtypes:
            supported = ", ".join(str(dtype) for dtype in dtypes)
            fix = "float()" if dtypes is DTYPES else f"to({dtypes[0]})"
            raise KernelError(
                f"{kernel}: {name} is {operand.dtype}, must be one of {supported}; call "
                f"{name}.{fix}"
            )
        if dims is not None:
            _require_dims(kernel, name, operand, dims)
        _require_device(kernel, name, operand, first_name, first.device)
        # the stride of a dim of length 1 is arbitrary and unused
        if operand.ndim and operand.shape[-1] > 1 and operand.stride(-1) != 1:
            raise KernelError(
                f"{kernel}: {name} must be contiguous along its last dim, got strides "
                f"{operand.stride()}; "
                f"call {name}.contiguous()"
            )


def require_integers(
    kernel: str, *, dtype: torch.dtype, dims: int, like: Tensor, **operands: Tensor
) -> None:
    """Require contiguous integer operands of one dtype.

    Args:
        kernel: Named in the message.
        dtype: Required dtype.
        dims: Required number of dims.
        like: A tensor on the required device.
        operands: By parameter name.
    """
    for name, operand in operands.items():
        if operand.dtype != dtype:
            raise KernelError(
                f"{kernel}: {name} is {operand.dtype}, must be {dtype}; call {name}.to({dtype})"
            )
        _require_dims(kernel, name, operand, dims)
        _require_device(kernel, name, operand, "another operand", like.device)
    require_contiguous(kernel, **operands)


def require_contiguous(kernel: str, **operands: Tensor) -> None:
    """Require operands that are contiguous along all dims."""
    for name, operand in operands.items():
        if not operand.is_contiguous():
            raise KernelError(
                f"{kernel}: {name} must be contiguous, got strides {operand.stride()}; call "
                f"{name}.contiguous()"
            )


def require_equal(kernel: str, property_name: str, **values: object) -> None:
    """Require equal values, for example of a dim that two operands share."""
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{name} {value}" for name, value in values.items())
        raise KernelError(f"{kernel}: {property_name} must be equal, got {listed}")


def refuse_gradients(kernel: str, **operands: Tensor) -> None:
    """Reject operands that require a gradient: the output of a forward-only kernel has none."""
    for name, operand in operands.items():
        if torch.is_grad_enabled() and operand.requires_grad:
            raise KernelError(
                f"{kernel}: {name} requires a gradient, and this kernel is forward only; "
                f"call it under torch.no_grad() or pass {name}.detach()"
            )


def _require_dims(kernel: str, name: str, operand: Tensor, dims: int) -> None:
    if operand.ndim != dims:
        raise KernelError(
            f"{kernel}: {name} must have {dims} dims, got shape {tuple(operand.shape)}; call "
            f"{name}.reshape(...)"
        )


def _require_device(
    kernel: str, name: str, operand: Tensor, expected_name: str, expected: torch.device
) -> None:
    if operand.device != expected:
        raise KernelError(
            f"{kernel}: {name} is on {operand.device}, {expected_name} on {expected}; "
            f"call {name}.to({str(expected)!r})"
        )


def is_stored_transposed(matrix: Tensor) -> bool:
    """Whether a matrix is a transposed view of a row-major matrix, as `linear.weight.t()` is."""
    if matrix.ndim != 2:
        return False
    n_rows, n_cols = matrix.shape
    return n_cols > 1 and matrix.stride(1) != 1 and (n_rows <= 1 or matrix.stride(0) == 1)


def supports_tma(tensor: Tensor) -> bool:
    """Whether the Tensor Memory Accelerator can copy tiles: address and strides are multiples of 16
    bytes.

    Source: CUDA driver API, cuTensorMapEncodeTiled.
    """
    return tensor.numel() > 0 and tensor.stride(-1) == 1 and is_aligned(tensor)


def is_aligned(*tensors: Tensor) -> bool:
    """Whether every row starts at a multiple of 16 bytes, for vector loads."""
    for tensor in tensors:
        item_bytes = tensor.element_size()
        if tensor.data_ptr() % 16:
            return False
        if any(stride * item_bytes % 16 for stride in tensor.stride()[:-1]):
            return False
    return True
