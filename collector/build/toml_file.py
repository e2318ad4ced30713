"""Read TOML files that other tools check."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file; empty if it is missing or invalid, which its own tool will report."""
    try:
        return tomllib.loads(file.read_text())
    except (OSError, ValueError):
        return {}


def table(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A table in a TOML document; empty if it has none."""
    inner: Any = document
    for name in names:
        if isinstance(inner, Mapping):
            inner = inner.get(name)
        else:
            inner = None
    if isinstance(inner, Mapping):
        return dict(inner)
    return {}


def texts(value: object) -> list[str]:
    """The texts in a list; none if it is something else."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str)]
    return []
