"""What every launcher asks of its operands before it launches: a kernel reads raw pointers, so whatever is not
refused here is read wrongly later.
"""

import torch

from roofwatch.kernels.errors import KernelError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def require_operands(
    kernel: str, *, dims: int | None = None, dtypes: tuple[torch.dtype, ...] = DTYPES, **operands: torch.Tensor
) -> None:
    """Refuse operands that are not tensors of one device and of a known dtype, contiguous along their last dim.

    Args:
        kernel: Named in the message.
        dims: Number of dims that every operand must have; None leaves it to the kernel.
        dtypes: Those that an operand may have; floating-point ones if left out.
        operands: By the name that the caller knows them by.

    Raises:
        KernelError: names the operand, what it has, and the call that mends it.
    """
    first_name, first = next(iter(operands.items()))
    for name, operand in operands.items():
        if operand.dtype not in dtypes:
            known = ", ".join(str(dtype) for dtype in dtypes)
            mending = "float()" if dtypes is DTYPES else f"to({dtypes[0]})"
            raise KernelError(f"{kernel}: {name} is {operand.dtype}, which is none of {known}; call {name}.{mending}")
        if dims is not None and operand.ndim != dims:
            raise KernelError(
                f"{kernel}: {name} must have {dims} dims, got shape {tuple(operand.shape)}; call {name}.reshape(...)"
            )
        if operand.device != first.device:
            raise KernelError(
                f"{kernel}: {name} is on {operand.device}, {first_name} on {first.device}; "
                f"call {name}.to({str(first.device)!r})"
            )
        # a dim of length 1 is never stepped along, and torch leaves its stride to chance
        if operand.ndim and operand.shape[-1] > 1 and operand.stride(-1) != 1:
            raise KernelError(
                f"{kernel}: {name} must be contiguous along its last dim, got strides {operand.stride()}; "
                f"call {name}.contiguous()"
            )


def require_integers(
    kernel: str, *, dtype: torch.dtype, dims: int, beside: torch.Tensor, **operands: torch.Tensor
) -> None:
    """Refuse indices and packed bits that are not contiguous integers of one dtype.

    Args:
        kernel: Named in the message.
        dtype: That every operand must have.
        dims: Number of dims that every operand must have.
        beside: An operand on the device that all must be on.
        operands: By the name that the caller knows them by.

    Raises:
        KernelError: names the operand, what it has, and the call that mends it.
    """
    for name, operand in operands.items():
        if operand.dtype != dtype:
            raise KernelError(f"{kernel}: {name} is {operand.dtype}, must be {dtype}; call {name}.to({dtype})")
        if operand.ndim != dims:
            raise KernelError(
                f"{kernel}: {name} must have {dims} dims, got shape {tuple(operand.shape)}; call {name}.reshape(...)"
            )
        if operand.device != beside.device:
            raise KernelError(
                f"{kernel}: {name} is on {operand.device}, not on {beside.device}; "
                f"call {name}.to({str(beside.device)!r})"
            )
        if not operand.is_contiguous():
            raise KernelError(
                f"{kernel}: {name} must be contiguous, got strides {operand.stride()}; call {name}.contiguous()"
            )


def is_stored_transposed(matrix: torch.Tensor) -> bool:
    """Whether a matrix is a view of its transpose that is contiguous along its last dim, as `linear.weight.t()` is."""
    if matrix.ndim != 2:
        return False
    n_rows, n_cols = matrix.shape
    return n_cols > 1 and matrix.stride(1) != 1 and (n_rows <= 1 or matrix.stride(0) == 1)


def can_be_copied_by_tiles(tensor: torch.Tensor) -> bool:
    """Whether the engine that copies tiles (TMA) takes a tensor: its address and its strides are multiples of 16
    bytes. Source: CUDA driver API, cuTensorMapEncodeTiled.
    """
    strides = tensor.stride()
    is_aligned = all(stride * tensor.element_size() % 16 == 0 for stride in strides[:-1])
    return tensor.numel() > 0 and strides[-1] == 1 and is_aligned and tensor.data_ptr() % 16 == 0


def require_equal(kernel: str, what: str, **values: object) -> None:
    """Refuse operands that do not agree.

    Raises:
        KernelError: shows each value by its name.
    """
    if len(set(values.values())) > 1:
        shown = ", ".join(f"{name} {value}" for name, value in values.items())
        raise KernelError(f"{kernel}: {what} must be equal, got {shown}")


def refuse_gradients(kernel: str, **operands: torch.Tensor) -> None:
    """Refuse to cut the autograd graph without a word: a forward-only kernel's output has no gradient.

    Raises:
        KernelError: autograd is on and an operand requires a gradient.
    """
    for name, operand in operands.items():
        if torch.is_grad_enabled() and operand.requires_grad:
            raise KernelError(
                f"{kernel}: {name} requires a gradient, and this kernel is forward only; "
                f"call it under torch.no_grad() or pass {name}.detach()"
            )
