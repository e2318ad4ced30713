"""What a module does, and what of that runs on the host: told apart from comments, and from what Triton compiles.

Of a function that is decorated with something called `jit`, the body alone is not the host's: its decorators, the
autotuner's configurations among them, its name and its parameters are. Comments, docstrings and the places of things in
the file change nothing that runs; machine code is compared without its lines.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Self

from roofwatch.collector.compile.static_store import digest_of

_COMPILER = "jit"


@dataclass(frozen=True)
class CodeDigests:
    """Of one module, or of several together."""

    code: str
    """Equal where all of it does the same."""
    host: str
    """Equal where it does the same on the host; what else differs shows in machine code."""

    @classmethod
    def of(cls, source: bytes) -> Self:
        """Of a module's source, which Python must be able to read."""
        code = _WithoutComments().visit(ast.parse(source))
        host = _WithoutCompiled().visit(ast.parse(source))
        return cls(digest_of(ast.dump(code)), digest_of(ast.dump(host)))


class _WithoutComments(ast.NodeTransformer):
    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._without_docstring(node)

    def _without_docstring(self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


class _WithoutCompiled(_WithoutComments):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any(_is_compiler(decorator) for decorator in node.decorator_list):
            node.body = [ast.Pass()]
        return super().visit_FunctionDef(node)


def _is_compiler(decorator: ast.expr) -> bool:
    """`@triton.jit`, `@jit`, and either with arguments."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return name == _COMPILER
