"""A suite of jitted functions that nobody declared as kernels: each is compiled as its signatures say, and never run.

Runs in a worker process only, since it imports the functions' modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from roofwatch.collector.compile.signature import POINTEES, Argument, Signature, is_notation, read_signatures
from roofwatch.collector.errors import SuiteError
from roofwatch.spec import TOLERANCES, Case, InputMaker, KernelSpec, UnsupportedError, cases

_NOT_DIVISIBLE = 17
_DIVISIBLE = 64
_BEYOND_32_BITS = 2**40
_BEYOND_63_BITS = 2**63
_SCALARS: dict[str, int | float | bool] = {
    "i32": _NOT_DIVISIBLE,
    "i32:16": _DIVISIBLE,
    "i32:1": 1,
    "i64": _BEYOND_32_BITS + 1,
    "i64:16": _BEYOND_32_BITS,
    "u64": _BEYOND_63_BITS + 1,
    "u64:16": _BEYOND_63_BITS,
    "fp32": 1.5,
    "u1": True,
}
"""A value that Triton specialises in the way of the notation (triton/runtime/jit.py)."""
_ELEMENTS = 64


def signed_specs(file: Path, module: str | None, import_file: Callable[[Path], ModuleType]) -> list[KernelSpec]:
    """A kernel for each function that has signatures.

    Args:
        file: The signatures.
        module: Take the functions of this module alone, and those too that have no signature: they are not supported.
        import_file: Imports a file by its path.

    Raises:
        SuiteError: a module cannot be imported, or has no such function, or nothing is left to compile.
    """
    by_function: dict[str, list[Signature]] = {}
    for signature in read_signatures(file):
        if module is None or signature.home == module:
            by_function.setdefault(signature.function, []).append(signature)
    functions = {name: _function(signatures[0], file, import_file) for name, signatures in by_function.items()}
    signed = {qualified.rpartition(":")[2] for qualified in by_function}
    unsigned = [] if module is None else _unsigned(_import(module), signed)
    names = _short_names([*by_function, *(f"{module}:{name}" for name in unsigned)])
    specs = [_spec(names[qualified], functions[qualified], signatures) for qualified, signatures in by_function.items()]
    specs += [_spec_without_signature(names[f"{module}:{name}"], str(module), name) for name in unsigned]
    if not specs:
        where = f"{file}" if module is None else f"module {module}"
        raise SuiteError(f"{where}: no jitted function to compile; a signature names one as package.module:name")
    return specs


def _function(signature: Signature, file: Path, import_file: Callable[[Path], ModuleType]) -> Any:
    home = signature.home
    module = import_file(file.parent / home) if home.endswith(".py") else _import(home)
    found = getattr(module, signature.name, None)
    if not _is_launchable(found):
        raise SuiteError(f"{file}: {signature.function}: no jitted function of that name there")
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise SuiteError(f"module {name}: {type(error).__name__}: {error}") from error


def _is_launchable(value: object) -> bool:
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    return isinstance(value, (JITFunction, Autotuner, Heuristics))


def _unsigned(module: ModuleType, signed: set[str]) -> list[str]:
    """Jitted functions of a module without a signature, but for those that another one calls: they are no kernels."""
    own = {
        name: value
        for name, value in vars(module).items()
        if _is_launchable(value) and _body(value).__module__ == module.__name__
    }
    called = {word for value in own.values() for word in _body(value).__code__.co_names}
    return sorted(name for name in own.keys() - signed - called)


def _body(function: Any) -> Any:
    """The Python function under all that wraps it."""
    while hasattr(function, "fn"):
        function = function.fn
    return function


def _short_names(qualified: Iterable[str]) -> dict[str, str]:
    """The function's own name where it tells them apart, else with its module's."""
    everything = list(dict.fromkeys(qualified))
    short = [name.rpartition(":")[2] for name in everything]
    return {
        full: name if short.count(name) == 1 else "".join(c if c.isalnum() else "_" for c in full)
        for full, name in zip(everything, short, strict=True)
    }


def _spec(name: str, function: Any, signatures: list[Signature]) -> KernelSpec:
    by_digest = {signature.digest: signature for signature in signatures}
    declared = [
        case
        for digest, one in by_digest.items()
        for case in cases(shapes=[{**_lengths(one), "signature": digest}], dtypes=[_dtype(one)])
    ]

    def launch(digest: str) -> torch.Tensor:
        signature = by_digest[digest]
        function[(1,)](**_arguments(function, signature), **signature.options)
        return torch.empty(0)  # a call returns something, and nobody reads what a compiled one does

    return _uncosted_spec(name, str(_body(function).__module__), declared, launch)


def _spec_without_signature(name: str, module: str, function: str) -> KernelSpec:
    def launch(digest: str) -> torch.Tensor:  # noqa: ARG001  what a case's inputs are
        raise UnsupportedError(
            f"{module}:{function} has no signature, so nobody knows how it is launched: write one, or let "
            "`roofwatch static capture` see a launch"
        )

    return _uncosted_spec(name, module, cases(shapes=[{"signature": "none"}]), launch)


def _uncosted_spec(
    name: str, module: str, declared: Sequence[Case], launch: Callable[[str], torch.Tensor]
) -> KernelSpec:
    def inputs(case: Case, make: InputMaker) -> dict[str, Any]:  # noqa: ARG001  what a spec calls it with
        return {"digest": case.choice("signature")}

    def reference(**_: Any) -> Any:
        raise UnsupportedError("a function that is known by its signature alone is compiled, and has no reference")

    for function in (inputs, reference, launch):
        function.__module__ = module  # what the kernel is made from
    spec = KernelSpec(
        name=name, inputs=inputs, reference=reference, cases=declared, flop_count=_nothing, memory_bytes=_nothing
    )
    spec.implementation("triton", directions=["fwd"])(launch)
    return spec


def _nothing(case: Case) -> float:  # noqa: ARG001  what a spec calls it with
    return 0.0


def _lengths(signature: Signature) -> dict[str, int]:
    """Its constexpr integers: what people tell launches apart by."""
    return {
        name: value
        for name, value in signature.arguments.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }


def _dtype(signature: Signature) -> str:
    """Of the first floating-point pointer, else float32."""
    for value in signature.arguments.values():
        if isinstance(value, str) and is_notation(value) and value.startswith("*"):
            dtype = POINTEES[value[1:].partition(":")[0]]
            if dtype in TOLERANCES:
                return dtype
    return "float32"


def _arguments(function: Any, signature: Signature) -> dict[str, Any]:
    """Values that are specialised as the signature says, by parameter.

    Raises:
        UnsupportedError: the signature is not one of the function, as it is now.
    """
    parameters = _parameters(function)
    strange = sorted(signature.arguments.keys() - parameters.keys())
    if strange:
        raise UnsupportedError(
            f"{signature.function} has no parameter {strange[0]!r}, which its signature names; it has "
            f"{', '.join(parameters)}"
        )
    chosen = _chosen_by_tuner(function)
    given = {}
    for name, parameter in parameters.items():
        value = signature.arguments.get(name)
        if value is not None:
            given[name] = _constant(value) if parameter.is_constexpr else _value(signature, name, value)
        elif not parameter.has_default and name not in chosen:
            raise UnsupportedError(f"{signature.function}: the signature says nothing of {name!r}")
    return given


def _parameters(function: Any) -> dict[str, Any]:
    while not hasattr(function, "params"):
        function = function.fn
    return {parameter.name: parameter for parameter in function.params}


def _chosen_by_tuner(function: Any) -> set[str]:
    """Parameters that an autotuner or a heuristic around the function gives it."""
    chosen: set[str] = set()
    while hasattr(function, "fn"):
        chosen |= set(getattr(function, "values", {}))
        chosen |= {name for config in getattr(function, "configs", ()) for name in config.kwargs}
        function = function.fn
    return chosen


def _value(signature: Signature, name: str, argument: Argument) -> Any:
    if argument == {"none": True}:
        return None
    if not isinstance(argument, str) or not is_notation(argument):
        raise UnsupportedError(
            f"{signature.function}: {name} = {argument!r}: it is no constexpr, so its signature says how it is "
            "specialised, for example '*fp32:16' or 'i32'"
        )
    if not argument.startswith("*"):
        return _SCALARS[argument]
    pointee, _, divisor = argument[1:].partition(":")
    # torch aligns what it allocates; one element further is divisible by its size alone
    elements = torch.empty(_ELEMENTS + 1, dtype=getattr(torch, POINTEES[pointee]))
    return elements[:-1] if divisor else elements[1:]


def _constant(argument: Argument) -> Any:
    """Raises:
    UnsupportedError: it names a dtype or function that is not there.
    """
    if not isinstance(argument, dict):
        return argument
    if "none" in argument:
        return None
    if "dtype" in argument:
        import triton.language as tl

        found = getattr(tl, str(argument["dtype"]), None)
        if not isinstance(found, tl.dtype):
            raise UnsupportedError(f"dtype {argument['dtype']!r}: Triton has none of that name")
        return found
    home, _, name = str(argument["function"]).rpartition(":")
    found = getattr(importlib.import_module(home), name, None)
    if not _is_launchable(found):
        raise UnsupportedError(f"function {argument['function']!r}: no jitted function of that name there")
    return found
