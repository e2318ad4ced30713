"""Signatures: how a jitted function is launched, written down, so that it can be compiled where nobody launches it.

The notation of a parameter is that of Triton's ahead-of-time compiler (triton/tools/compile.py): `*fp32:16` a pointer
to floats whose address is divisible by 16, `*fp32` one that may not be, `i32:16` and `i32:1` an integer that is
divisible by 16 or equal to 1, `i32` any other, `fp32` a float. What is a constexpr of the function has its value.
Signatures are kept in a TOML file, by hand or as `roofwatch static capture` saw them.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.compile.cache import digest_of
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.toml import toml_value

SIGNATURE_SUFFIX = ".toml"
POINTEES = {
    "i1": "bool",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
}
"""torch's dtype by Triton's name, for tensors."""
_NOTATION = re.compile(r"\*(?P<pointee>\w+)(?P<aligned>:16)?|(?P<scalar>i32|i64|u64)(?P<hint>:16|:1)?|fp32|u1")
_QUALIFIED = re.compile(r"[^:]+:[A-Za-z_]\w*")
_FIELDS = frozenset({"function", "arguments", "options"})

Argument = str | int | float | bool | dict[str, str | bool]
"""A notation, or the value of a constexpr: `{none = true}`, `{dtype = "float16"}` and `{function = "module:name"}` are
those that TOML has no word for."""


@dataclass(frozen=True)
class Signature:
    """One way to launch a jitted function.

    Args:
        function: `package.module:name`, or `path/to/file.py:name` from the signature file's folder.
        arguments: By parameter, in any order.
        options: Compile options such as `num_warps`.
    """

    function: str
    arguments: Mapping[str, Argument]
    options: Mapping[str, str | int | float | bool]

    @property
    def home(self) -> str:
        """The module or file."""
        return self.function.rpartition(":")[0]

    @property
    def name(self) -> str:
        """The function's name there."""
        return self.function.rpartition(":")[2]

    @property
    def digest(self) -> str:
        """A short word, another for other arguments or options: tells the signatures of a function apart."""
        return "s" + digest_of(dict(self.arguments), dict(self.options))[:8]


def is_notation(argument: Argument) -> bool:
    """Whether it says how a parameter is specialised, in Triton's notation."""
    if not isinstance(argument, str):
        return False
    found = _NOTATION.fullmatch(argument)
    return found is not None and (found["pointee"] is None or found["pointee"] in POINTEES)


def read_signatures(file: Path) -> tuple[Signature, ...]:
    """Read a signature file.

    Raises:
        SuiteError: it cannot be read, or says something that is no signature; the message says which.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SuiteError(f"{file}: cannot be read as TOML: {error}") from None
    entries = document.pop("signature", None)
    if not isinstance(entries, list) or document:
        raise SuiteError(
            f"{file}: expected [[signature]] tables and nothing else; `roofwatch static capture` writes such a file"
        )
    return tuple(_parse(entry, f"{file}: signature {number}") for number, entry in enumerate(entries, start=1))


def to_toml(signatures: Iterable[Signature]) -> str:
    """The file of some signatures, in a fixed order."""
    ordered = sorted(signatures, key=lambda one: (one.function, json.dumps(dict(one.arguments), sort_keys=True)))
    return "\n".join(_entry(one) for one in ordered)


def _parse(entry: object, place: str) -> Signature:
    if not isinstance(entry, dict) or (strange := sorted(set(entry) - _FIELDS)):
        what = f"{strange[0]!r} is not known" if isinstance(entry, dict) else "not a table"
        raise SuiteError(f"{place}: {what}; a signature has {', '.join(sorted(_FIELDS))}")
    function, arguments, options = entry.get("function"), entry.get("arguments", {}), entry.get("options", {})
    if not isinstance(function, str) or not _QUALIFIED.fullmatch(function):
        raise SuiteError(f'{place}: function = {function!r}: write "package.module:name" or "path/to/file.py:name"')
    if not isinstance(arguments, dict) or not isinstance(options, dict):
        raise SuiteError(f"{place}: {function}: arguments and options are tables")
    for name, value in options.items():
        if not isinstance(value, (str, int, float, bool)):
            raise SuiteError(f"{place}: {function}: option {name} = {value!r}: write a number, a word or a truth")
    for name, value in arguments.items():
        if not _is_argument(value):
            raise SuiteError(
                f"{place}: {function}: {name} = {value!r}: neither a notation such as '*fp32:16' nor a value"
            )
    return Signature(function, arguments, options)


def _is_argument(value: object) -> bool:
    if isinstance(value, dict):
        return len(value) == 1 and (
            value.get("none") is True or isinstance(value.get("dtype", value.get("function")), str)
        )
    return isinstance(value, (str, int, float, bool))


def _entry(signature: Signature) -> str:
    lines = ["[[signature]]", f"function = {toml_value(signature.function)}"]
    lines.append(f"arguments = {toml_value(signature.arguments)}")
    if signature.options:
        lines.append(f"options = {toml_value(signature.options)}")
    return "\n".join(lines) + "\n"
