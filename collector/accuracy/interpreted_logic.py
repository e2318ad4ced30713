"""Evaluates `and`, `or` and `not` in Triton's interpreter as the compiler does: elementwise.

Python calls a block true whatever its elements are, so `rows < m and cols < n` was the second mask.
"""

import ast
from collections.abc import Callable
from typing import Any

import triton.language as tl

_ALL_OF, _ANY_OF, _NOT = "_roofwatch_all_of", "_roofwatch_any_of", "_roofwatch_not"


class ElementwiseLogic(ast.NodeTransformer):
    """Replaces the operators by calls; later operands are functions, so that they may be left
    out.
    """

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.Call:
        self.generic_visit(node)
        name = _ALL_OF if isinstance(node.op, ast.And) else _ANY_OF
        operands = [_function_of(operand) for operand in node.values]
        return _call(node, name, operands)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return _call(node, _NOT, [node.operand])


def add_logic_to(module: Any) -> None:
    """Define the called functions in the module whose names every interpreted function sees."""
    setattr(module, _ALL_OF, _all_of)
    setattr(module, _ANY_OF, _any_of)
    setattr(module, _NOT, _not)


def _function_of(operand: ast.expr) -> ast.Lambda:
    arguments = ast.arguments(
        posonlyargs=[],
        args=[],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    return ast.Lambda(args=arguments, body=operand)


def _call(node: ast.expr, name: str, operands: list[Any]) -> ast.Call:
    call = ast.Call(
        func=ast.Name(id=name, ctx=ast.Load()),
        args=operands,
        keywords=[],
    )
    return ast.fix_missing_locations(ast.copy_location(call, node))


def _all_of(*operands: Callable[[], Any]) -> Any:
    return _combined(
        operands,
        decisive=False,
        combine=lambda first, second: first & second,
    )


def _any_of(*operands: Callable[[], Any]) -> Any:
    return _combined(
        operands,
        decisive=True,
        combine=lambda first, second: first | second,
    )


def _combined(
    operands: tuple[Callable[[], Any], ...],
    *,
    decisive: bool,
    combine: Callable[[Any, Any], Any],
) -> Any:
    """A constant that decides ends the evaluation; any other has no effect on tensors."""
    result: Any = None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            mask = _as_mask(value)
            result = mask if result is None else combine(result, mask)
        elif bool(value) is decisive:
            return value
    # without a tensor, the last constant is the result
    return value if result is None else result


def _not(operand: Any) -> Any:
    if isinstance(operand, tl.tensor):
        return operand == 0
    return not operand


def _as_mask(tensor: Any) -> Any:
    if tensor.dtype is tl.int1:
        return tensor
    return tensor != 0
