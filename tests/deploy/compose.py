"""docker-compose.yml as a value, with variables substituted as Compose does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?P<kind>:[-?])(?P<rest>[^}]*)\}")


def read_compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return document


def read_services() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = read_compose()["services"]
    return services


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Put variables in.

    Raises:
        KeyError: one that must be set is not, or is empty.
    """

    def value(found: re.Match[str]) -> str:
        given = variables.get(found["name"], "")
        if not given and found["kind"] == ":?":
            raise KeyError(found["name"])
        return given or found["rest"]

    return _VARIABLE.sub(value, text)
