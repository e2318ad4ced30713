"""Launch signatures: how a jitted function is launched, stored in a TOML file.

Arguments are written as for Triton's ahead-of-time compiler (triton/tools/compile.py): `*fp32:16` is a pointer to
floats with an address divisible by 16, `i32:16` and `i32:1` are integers divisible by 16 or equal to 1, `fp32` is a
float. A constexpr is written as its value.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from roofwatch.collector.compile.cache import digest_of
from roofwatch.collector.errors import SuiteError

SIGNATURE_SUFFIX = ".toml"
TORCH_DTYPES = {
    "i1": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
}
"""torch dtype by Triton's name."""
_NOTATION = re.compile(r"\*(?P<pointee>\w+)(:16)?|i32(:16|:1)?|[iu]64(:16)?|fp32|u1")

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr
Argument = Scalar | dict[str, StrictBool | StrictStr]
"""A notation or a constexpr. TOML has no value for None, dtypes and functions, so these are tables:
`{none = true}`, `{dtype = "float16"}`, `{function = "module:name"}`."""


class Signature(BaseModel):
    """One way to launch a jitted function.

    Args:
        function: `package.module:name`, or `path/to/file.py:name` relative to the signature file.
        arguments: By parameter.
        options: Compile options such as `num_warps`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_]\w*$")]
    arguments: dict[str, Argument] = {}
    options: dict[str, Scalar] = {}

    @property
    def module(self) -> str:
        """Module or file that defines the function."""
        return self.function.rpartition(":")[0]

    @property
    def name(self) -> str:
        return self.function.rpartition(":")[2]

    @property
    def digest(self) -> str:
        """A short digest of arguments and options."""
        return "s" + digest_of(self.arguments, self.options)[:8]


def is_notation(argument: object) -> bool:
    """Return whether an argument is written in Triton's notation."""
    found = _NOTATION.fullmatch(argument) if isinstance(argument, str) else None
    return found is not None and (found["pointee"] is None or found["pointee"] in TORCH_DTYPES)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    signature: tuple[Signature, ...]


def read_signatures(file: Path) -> tuple[Signature, ...]:
    """Read a signature file.

    Raises:
        SuiteError: the file cannot be read or has an invalid entry.
    """
    try:
        return _File.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).signature
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SuiteError(f"{file}: cannot be read as TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise SuiteError(
            f"{file}: {where}: {first['msg']}; `roofwatch static capture` writes [[signature]] tables with "
            "function, arguments and options"
        ) from None


def to_toml(signatures: Iterable[Signature]) -> str:
    """Return the text of a signature file, sorted."""
    tables = []
    for one in sorted(signatures, key=lambda one: (one.function, json.dumps(one.arguments, sort_keys=True))):
        fields = one.model_dump(exclude=None if one.options else {"options"})
        tables.append("[[signature]]\n" + "".join(f"{name} = {toml_value(value)}\n" for name, value in fields.items()))
    return "\n".join(tables)


def toml_value(value: Any) -> str:
    """Write a string, number, bool or table as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(name)} = {toml_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, float):
        return repr(value)  # TOML has nan and inf too
    # like JSON, except for one control character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else toml_value(name)
