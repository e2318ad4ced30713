"""Writes TOML values; Python reads TOML and does not write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml_value(value: Any) -> str:
    """Text, a number, a truth or a table of those; equal values give equal text."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {toml_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, float):
        return repr(value)  # nan and inf are TOML's words too
    # JSON's escapes are TOML's, but for the one control character that JSON lets stand
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else toml_value(name)
