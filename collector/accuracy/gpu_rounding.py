"""Run PyTorch on a CPU with the roundings that it has on a GPU."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


class GpuRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is not typed
    """Compute each operator in single precision, and round its results to the dtypes that they have
    on a GPU.

    On a CPU, PyTorch rounds more: mean and variance of a norm have the dtype of its input, which
    costs the backward pass most of its digits where the mean is far from zero.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is not typed

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute low-precision operators in a wider dtype, and round the result once."""
        call = (args, dict(kwargs or {}))
        tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(call) if _is_low(leaf)]
        # a view has the numbers of its input
        is_view = any(result.alias_info is not None for result in func._schema.returns)
        if not tensors or is_view or func._schema.is_mutable:
            return func(*call[0], **call[1])
        try:
            # a meta tensor has the form of the result on a GPU
            meta_args, meta_kwargs = tree_map_only(torch.Tensor, _to_meta, call)
            forms = func(*meta_args, **meta_kwargs)
        except (NotImplementedError, RuntimeError, TypeError):
            return func(*call[0], **call[1])
        wide_args, wide_kwargs = tree_map_only(torch.Tensor, _widen, call)
        results = func(*wide_args, **wide_kwargs)
        return torch.utils._pytree.tree_map(_round, results, forms)


def _is_low(value: object) -> bool:
    is_floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return is_floating and isinstance(value, torch.Tensor) and value.itemsize < 4


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("meta")


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    if _is_low(tensor):
        return tensor.float()
    return tensor


def _round(result: Any, form: Any) -> Any:
    if isinstance(result, torch.Tensor) and isinstance(form, torch.Tensor):
        return result.to(form.dtype)
    return result
