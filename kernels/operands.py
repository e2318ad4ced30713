"""What every launcher asks of its operands before it launches: a kernel reads raw pointers, so whatever is not
refused here is read wrongly later.
"""

import torch

from kernels.errors import KernelError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def require_operands(kernel: str, *, dims: int | None = None, **operands: torch.Tensor) -> None:
    """Refuse operands that are not floating-point tensors of one device, contiguous along their last dim.

    Args:
        kernel: Named in the message.
        dims: Number of dims that every operand must have; None leaves it to the kernel.
        operands: By the name that the caller knows them by.

    Raises:
        KernelError: names the operand, what it has, and the call that mends it.
    """
    first_name, first = next(iter(operands.items()))
    for name, operand in operands.items():
        if operand.dtype not in DTYPES:
            known = ", ".join(str(dtype) for dtype in DTYPES)
            raise KernelError(f"{kernel}: {name} is {operand.dtype}, which is none of {known}; call {name}.float()")
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
