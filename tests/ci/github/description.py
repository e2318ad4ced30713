"""Whether a request is one that GitHub's published description allows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from tests.ci.github.extract_description import DESCRIPTION


class UnknownRequestError(Exception):
    """GitHub describes no such request."""


@dataclass(frozen=True)
class Operation:
    """What the description says of one method of one path."""

    name: str
    """GitHub's operation id, for example `issues/create-comment`."""
    values: dict[str, str]
    """What the path says, by name."""
    described: dict[str, Any]

    def check(self, query: dict[str, str], body: Any) -> list[str]:
        """What is wrong with a request, in words."""
        parameters = self.described["parameters"]
        wrong = []
        for place, given in (("path", self.values), ("query", query)):
            known = {parameter["name"]: parameter for parameter in parameters if parameter["in"] == place}
            wrong += [f"{place}: {name} is not known" for name in given.keys() - known.keys()]
            wrong += [
                f"{place}: {name} is missing"
                for name, parameter in known.items()
                if parameter.get("required") and name not in given
            ]
            for name in given.keys() & known.keys():
                schema = known[name]["schema"]
                wrong += [f"{place}: {name}: {error.message}" for error in _errors(schema, _typed(given[name], schema))]
        return wrong + self._check_body(body)

    def _check_body(self, body: Any) -> list[str]:
        described = self.described.get("requestBody")
        if described is None:
            return [] if body is None else ["body: there should be none"]
        schema = described["content"]["application/json"]["schema"]
        wrong = [f"body: {error.json_path}: {error.message}" for error in _errors(schema, body)]
        # the description lets anything else pass; what nobody described was not meant
        strangers = body.keys() - schema["properties"].keys() if isinstance(body, dict) else set()
        return wrong + [f"body: {name} is not known" for name in sorted(strangers)]


def operation_of(method: str, path: str) -> Operation:
    """Find what a request asks for.

    Raises:
        UnknownRequestError: the description has nothing of the kind.
    """
    for template, operations in _description()["paths"].items():
        # a file's path has slashes in it
        found = re.fullmatch(
            re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template).replace("(?P<path>[^/]+)", "(?P<path>.+)"), path
        )
        if found and method.lower() in operations:
            described = operations[method.lower()]
            return Operation(described["operationId"], found.groupdict(), described)
    raise UnknownRequestError(f"{method} {path}")


@cache
def _description() -> dict[str, Any]:
    description: dict[str, Any] = json.loads(DESCRIPTION.read_text())
    return description


def _errors(schema: dict[str, Any], value: Any) -> list[Any]:
    return list(Draft202012Validator(schema, format_checker=FormatChecker()).iter_errors(value))


def _typed(text: str, schema: dict[str, Any]) -> Any:
    return int(text) if schema.get("type") == "integer" and text.lstrip("-").isdigit() else text
