"""A suite made from launch signatures: each jitted function is a kernel, each signature a case.

Such a kernel is compiled but never run. Only worker processes use this module, because it imports the functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from roofwatch.collector.compile.signature import TORCH_DTYPES, Argument, Signature, is_notation, read_signatures
from roofwatch.collector.errors import SuiteError
from roofwatch.spec import TOLERANCES, Case, InputMaker, KernelSpec, UnsupportedError, cases

_SCALARS: dict[str, int | float | bool] = {
    "i32": 17,
    "i32:16": 64,
    "i32:1": 1,
    "i64": 2**40 + 1,
    "i64:16": 2**40,
    "u64": 2**63 + 1,
    "u64:16": 2**63,
    "fp32": 1.5,
    "u1": True,
}
"""A value that Triton specialises as the notation says (triton/runtime/jit.py)."""
_ELEMENT_COUNT = 64


def signed_specs(file: Path, module: str | None, import_file: Callable[[Path], ModuleType]) -> list[KernelSpec]:
    """Make a kernel of each function in a signature file.

    Args:
        file: The signatures.
        module: Take only functions of this module.
        import_file: Imports a file by its path.

    Raises:
        SuiteError: a module cannot be imported, a function does not exist, or no function is left.
    """
    by_function: dict[str, list[Signature]] = {}
    for signature in read_signatures(file):
        if module is None or signature.module == module:
            by_function.setdefault(signature.function, []).append(signature)
    if not by_function:
        where = file if module is None else f"{file}, module {module}"
        raise SuiteError(f"{where}: no signature; record some with `roofwatch static capture -- PROGRAM.py`")
    names = [signatures[0].name for signatures in by_function.values()]
    specs = []
    for qualified, signatures in by_function.items():
        name = signatures[0].name
        unique = name if names.count(name) == 1 else "".join(c if c.isalnum() else "_" for c in qualified)
        specs.append(_spec(unique, _find_function(signatures[0], file, import_file), signatures))
    return specs


def _find_function(signature: Signature, file: Path, import_file: Callable[[Path], ModuleType]) -> Any:
    if signature.module.endswith(".py"):
        module = import_file(file.parent / signature.module)
    else:
        try:
            module = importlib.import_module(signature.module)
        except (Exception, SystemExit) as error:
            raise SuiteError(f"module {signature.module}: {type(error).__name__}: {error}") from error
    function = getattr(module, signature.name, None)
    if not _is_jitted(function):
        raise SuiteError(f"{file}: {signature.function}: no such jitted function")
    return function


def _is_jitted(value: object) -> bool:
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    return isinstance(value, (JITFunction, Autotuner, Heuristics))


def _spec(name: str, function: Any, signatures: list[Signature]) -> KernelSpec:
    by_digest = {signature.digest: signature for signature in signatures}

    def inputs(case: Case, make: InputMaker) -> dict[str, Any]:  # noqa: ARG001  signature of a spec's function
        return {"digest": case.choice("signature")}

    def reference(**_: Any) -> Any:
        raise UnsupportedError("a kernel from a launch signature has no reference")

    def launch(digest: str) -> torch.Tensor:
        signature = by_digest[digest]
        function[(1,)](**_arguments(function, signature), **signature.options)
        return torch.empty(0)

    body = function
    while hasattr(body, "fn"):
        body = body.fn
    for one in (inputs, reference, launch):
        one.__module__ = body.__module__  # the kernel's source
    spec = KernelSpec(
        name=name,
        inputs=inputs,
        reference=reference,
        cases=[case for digest, one in by_digest.items() for case in _cases(digest, one)],
        flop_count=lambda case: 0.0,  # noqa: ARG005
        memory_bytes=lambda case: 0.0,  # noqa: ARG005
    )
    spec.implementation("triton", directions=["fwd"])(launch)
    return spec


def _cases(digest: str, signature: Signature) -> list[Case]:
    """Make a case; its shape shows the constexpr integers, its dtype is that of the first floating-point pointer."""
    arguments = signature.arguments
    lengths = {name: value for name, value in arguments.items() if type(value) is int and value >= 0}
    pointers = [value for value in map(str, arguments.values()) if value.startswith("*") and is_notation(value)]
    pointees = [value[1:].partition(":")[0] for value in pointers]
    dtypes = [TORCH_DTYPES[pointee] for pointee in pointees if TORCH_DTYPES[pointee] in TOLERANCES]
    return list(cases(shapes=[{**lengths, "signature": digest}], dtypes=dtypes[:1] or ["float32"]))


def _arguments(function: Any, signature: Signature) -> dict[str, Any]:
    """Make argument values that Triton specialises as the signature says.

    Raises:
        UnsupportedError: the signature does not fit the function.
    """
    given_by_tuner: set[str] = set()
    while not hasattr(function, "params"):
        given_by_tuner |= set(getattr(function, "values", {}))
        given_by_tuner |= {name for config in getattr(function, "configs", ()) for name in config.kwargs}
        function = function.fn
    parameters = {parameter.name: parameter for parameter in function.params}
    unknown = sorted(signature.arguments.keys() - parameters.keys())
    if unknown:
        raise UnsupportedError(
            f"{signature.function} has no parameter {unknown[0]!r}, but {', '.join(parameters)}: update its signature"
        )
    values = {}
    for name, parameter in parameters.items():
        if name in signature.arguments:
            make = _constexpr if parameter.is_constexpr else _runtime_value
            try:
                values[name] = make(signature.arguments[name])
            except ValueError as error:
                raise UnsupportedError(f"{signature.function}: {name}: {error}") from None
        elif not parameter.has_default and name not in given_by_tuner:
            raise UnsupportedError(f"{signature.function}: the signature has no value for {name!r}")
    return values


def _runtime_value(argument: Argument) -> Any:
    if argument == {"none": True}:
        return None
    if not isinstance(argument, str) or not is_notation(argument):
        raise ValueError(f"{argument!r} is not a notation such as '*fp32:16' or 'i32', and this is no constexpr")
    if not argument.startswith("*"):
        return _SCALARS[argument]
    pointee, _, divisor = argument[1:].partition(":")
    # torch aligns allocations; one element further, the address is divisible by the element size only
    elements = torch.empty(_ELEMENT_COUNT + 1, dtype=getattr(torch, TORCH_DTYPES[pointee]))
    return elements[:-1] if divisor else elements[1:]


def _constexpr(argument: Argument) -> Any:
    if not isinstance(argument, dict):
        return argument
    if "none" in argument:
        return None
    if "dtype" in argument:
        import triton.language as tl

        dtype = getattr(tl, str(argument["dtype"]), None)
        if not isinstance(dtype, tl.dtype):
            raise ValueError(f"Triton has no dtype {argument['dtype']!r}")
        return dtype
    module, _, name = str(argument.get("function")).rpartition(":")
    function = getattr(importlib.import_module(module), name, None) if module else None
    if not _is_jitted(function):
        raise ValueError(f"no jitted function {argument!r}")
    return function
