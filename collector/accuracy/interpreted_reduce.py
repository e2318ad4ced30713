"""Reduce blocks in Triton's interpreter as a GPU does: as a tree, rounding each step to the dtype.

Triton's own adds float16 and bfloat16 in a wider type, which hides the error of a kernel that does
so, and calls a user's function once per element.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_EXTREMES = (
    tl.standard._argmin_combine_tie_break_left,
    tl.standard._argmax_combine_tie_break_left,
    tl.standard._elementwise_max,
    tl.standard._elementwise_min,
)
_BRANCHES = (ast.If, ast.IfExp, ast.While, ast.For, ast.BoolOp)


def reduce_as_tree(
    *, in_order: Callable[..., Any], exact: Callable[..., Any]
) -> Callable[..., Any]:
    """Make a replacement of `ReduceOps.apply_impl`.

    Args:
        in_order: Combines element by element, for functions that branch on values.
        exact: Finds the largest or smallest element, which rounds nothing.
    """

    def apply(operations: Any, tensors: tuple[Any, ...]) -> Any:
        combine = operations.combine_fn
        # the largest element is the same in any order
        if combine in _EXTREMES:
            return exact(operations, tensors)
        # a branch on values is not defined for whole blocks
        if _has_branches(combine.fn):
            return in_order(operations, tensors)
        rank = tensors[0].handle.data.ndim
        axis = operations.axis
        blocks = [_leading_axis(tensor.handle.data, axis) for tensor in tensors]
        kinds = [tensor.dtype for tensor in tensors]
        if combine is tl.standard._sum_combine:
            reduced = [_sum(blocks[0], kinds[0])]
        else:
            reduced = _combine(combine.fn, blocks, kinds)
        results = []
        for block, kind in zip(reduced, kinds, strict=True):
            if operations.keep_dims:
                if axis is None:
                    block = block.reshape((1,) * rank)
                else:
                    block = np.expand_dims(block, axis)
            results.append(_as_tensor(block, kind))
        return results

    return apply


def _leading_axis(block: Any, axis: int | None) -> Any:
    if axis is None:
        return block.reshape(-1)
    return np.moveaxis(block, axis, 0)


def _sum(block: Any, kind: Any) -> Any:
    """Add the halves of a block until one row is left, rounding as the dtype does."""
    if kind is not tl.bfloat16:
        while len(block) > 1:
            middle = len(block) // 2
            block = block[:middle] + block[middle:]
        return block[0]
    values = torch.from_numpy(np.ascontiguousarray(block)).view(torch.bfloat16)
    while len(values) > 1:
        middle = len(values) // 2
        values = values[:middle] + values[middle:]
    return values[0].contiguous().view(torch.uint16).numpy()


def _combine(function: Callable[..., Any], blocks: list[Any], kinds: list[Any]) -> list[Any]:
    """Combine the halves of blocks with a function until one row is left."""
    while len(blocks[0]) > 1:
        middle = len(blocks[0]) // 2
        first: list[Any] = []
        second: list[Any] = []
        for block, kind in zip(blocks, kinds, strict=True):
            first.append(_as_tensor(block[:middle], kind))
            second.append(_as_tensor(block[middle:], kind))
        results = function(*first, *second)
        # a single result is no tuple
        if not isinstance(results, (tuple, tl.tuple)):
            results = (results,)
        shape = first[0].handle.data.shape
        blocks = [np.broadcast_to(result.handle.data, shape) for result in results]
    return [block[0] for block in blocks]


def _as_tensor(block: Any, kind: Any) -> Any:
    array = np.asarray(block)
    tensor_type = kind
    if array.ndim == 0:
        array = array.reshape(1)
    else:
        tensor_type = tl.block_type(kind, list(array.shape))
    return tl.tensor(interpreter.TensorHandle(array, kind), tensor_type)


@functools.cache
def _has_branches(function: Callable[..., Any]) -> bool:
    """Whether a function may need single values; so may one whose source is not known."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return True
    return any(isinstance(node, _BRANCHES) for node in ast.walk(tree))
