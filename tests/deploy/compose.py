"""docker-compose.yml as a value, with variables substituted as Compose does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


def environment_seen(service: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    """What a service's process sees: what is written, and of what is only named what is set.

    Raises:
        KeyError: as `substitute`.
    """
    given: Mapping[str, str | None] = service["environment"]
    written = {name: substitute(text, variables) for name, text in given.items() if text is not None}
    return written | {name: variables[name] for name, text in given.items() if text is None and name in variables}


def strings(value: object) -> Iterator[str]:
    """All text in a part of the document, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from strings(key)
            yield from strings(child)
    elif isinstance(value, list):
        for child in value:
            yield from strings(child)
