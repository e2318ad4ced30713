"""Read the table `[build]` of a revision."""

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from roofwatch.collector.build.toml_file import read_toml, table
from roofwatch.model.build_settings import BuildSettings
from roofwatch.model.errors import SuiteError

_PREFIX = "ROOFWATCH_BUILD_"


def read_build_settings(tree: Path, work_tree: Path) -> BuildSettings:
    """Read how a tree is built: from its own configuration file, else from that of the user's
    checkout. Environment variables override both.

    Raises:
        SuiteError: a setting is unknown or has an invalid value.
    """
    values = _from_file(tree)
    if values is None:
        values = _from_file(work_tree) or {}
    values = {**values, **_from_environment()}
    try:
        return BuildSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(step) for step in first["loc"])
        raise SuiteError(f"[build] {name}: {first['msg']}") from None


def _from_file(folder: Path) -> dict[str, Any] | None:
    """The table of `roofwatch.toml`, or of `[tool.roofwatch]`; None without a table."""
    document = read_toml(folder / "roofwatch.toml")
    shared = table(read_toml(folder / "pyproject.toml"), "tool", "roofwatch")
    for settings in (document, shared):
        if "build" in settings:
            return table(settings, "build")
    return None


def _from_environment() -> dict[str, Any]:
    variables = {
        name: os.environ.get(_PREFIX + name.upper()) for name in BuildSettings.model_fields
    }
    return {name: value for name, value in variables.items() if value is not None}
