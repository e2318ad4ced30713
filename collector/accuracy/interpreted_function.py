"""Gives interpreted functions what packages ask of compiled ones.

A package that keeps compiled kernels itself looks for `JITFunction` among the wrappers of a
function, reads its parameters, and launches again what a launch returned.
"""

from typing import Any

from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from roofwatch.collector.digests import digest_of
from roofwatch.collector.relaunch import LaunchedKernel

_COMPILED = "_roofwatch_compiled"
_Function: Any = InterpretedFunction


def answer_as_compiled() -> None:
    """Let interpreted functions pass as compiled ones in this process."""
    interpret = _Function.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        interpret(self, *args, grid=grid, warmup=warmup, **kwargs)
        constants = {param.name for param in _compiled(self).params if param.is_constexpr}
        return LaunchedKernel(
            function=self,
            args=args,
            kwargs=kwargs,
            constants=constants,
        )

    _Function.run = run
    _Function.__getattr__ = _attribute_of_compiled
    interpreter.InterpretedFunction = _PassesAsCompiled  # which `triton.jit` makes


class _PassesAsCompiled(InterpretedFunction):  # type: ignore[misc]  # Triton is not typed
    __class__ = property(lambda _function: JITFunction)


def _compiled(function: Any) -> Any:
    """The function as the compiler takes it; it is never compiled."""
    if _COMPILED not in vars(function):
        vars(function)[_COMPILED] = JITFunction(function.fn)
    return vars(function)[_COMPILED]


def _attribute_of_compiled(function: Any, name: str) -> Any:
    if "fn" not in vars(function):  # it is being made
        raise AttributeError(name)
    if name == "cache_key":  # the compiled one's needs every function that it calls
        return digest_of(_compiled(function).src)
    return getattr(_compiled(function), name)
