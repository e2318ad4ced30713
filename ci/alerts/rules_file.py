"""The file of alert rules: a TOML file without secret addresses. Pure."""

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from roofwatch.ci.alerts.kinds import Rule
from roofwatch.ci.alerts.ownership import KernelOwners
from roofwatch.ci.alerts.tables import Name, RulesTable, Variable, matches, suggestion
from roofwatch.ci.messages import AlertError


class AddressedChannel(RulesTable):
    """A channel with a secret address, which is in an environment variable or in a file beside the
    rules.
    """

    kind: Literal["apprise", "webhook"]
    url_env: Variable | None = None
    url_file: str | None = None
    """Path relative to the rules."""
    secret_env: Variable | None = None
    """Environment variable with the key that signs a webhook's messages."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.url_env is None) == (self.url_file is None):
            raise ValueError("name where the address is: either url_env or url_file")
        if self.secret_env is not None and self.kind != "webhook":
            raise ValueError("secret_env is only for webhooks")
        return self


class IssueChannel(RulesTable):
    """A repository of GitHub in which each alert is an issue."""

    kind: Literal["github"]
    repository: Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*/[\w.-]+$")]
    token_env: Variable = "GITHUB_TOKEN"  # noqa: S105  the name of a variable
    labels: tuple[Name, ...] = ()


Channel = Annotated[AddressedChannel | IssueChannel, Field(discriminator="kind")]


class AcknowledgeTable(RulesTable):
    """Links in messages that acknowledge an alert."""

    url: Annotated[str, StringConstraints(pattern=r"^https://[^\s?#]+[^\s?#/]$")]
    """Public address of the API."""
    secret_env: Variable
    """Environment variable with the key that signs them."""


class AlertRules(RulesTable):
    """The whole file: channels, rules and owners."""

    channels: dict[Name, Channel] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    owners: tuple[KernelOwners, ...] = ()
    """The last match counts, as in CODEOWNERS."""
    acknowledge: AcknowledgeTable | None = None
    messages_per_hour: Annotated[int, Field(ge=1)] = 20
    """To one channel; beyond that, one summary."""
    codeowners: str | None = None
    """Path of a CODEOWNERS file or a checkout, relative to the rules."""

    @field_validator("rules")
    @classmethod
    def _differ_in_name(cls, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        names = [rule.name for rule in rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two rules have the name {name!r}")
        return rules

    def of(self, project: str) -> list[Rule]:
        """The rules that are about a project."""
        return [rule for rule in self.rules if matches(project, rule.projects)]


def parse_rules(text: str) -> AlertRules:
    """Read a file of rules.

    Raises:
        AlertError: it is not valid; the message has every fault and its place, but no value, which
        may be a secret.
    """
    try:
        document = tomllib.loads(text)
        channels = document.get("channels", {})
        if isinstance(channels, dict):
            context = channels
        else:
            context = None
        return AlertRules.model_validate(document, context=context)
    except tomllib.TOMLDecodeError as error:
        raise AlertError(f"not TOML: {error}") from None
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        texts = [_in_words(fault, document) for fault in faults]
        raise AlertError("; ".join(texts)) from None


def _keys_of(table: type[BaseModel]) -> set[str]:
    """Keys of a table and of all tables derived from it."""
    keys = set(table.model_fields)
    for derived in table.__subclasses__():
        keys |= _keys_of(derived)
    return keys


_KEYS = _keys_of(RulesTable)
_PLAIN = {
    "missing": "is missing",
    "tuple_type": 'must be a list, such as ["*"]',
    "union_tag_not_found": "must be a table with a kind",
    "string_pattern_mismatch": "has a character that is not allowed here",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "must be a table"),
}


def _in_words(fault: ErrorDetails, document: Mapping[str, Any]) -> str:
    """Write a fault in plain words: where it is, what is wrong, and what is probably meant."""
    location = _location_of(fault, document) or "the file"
    return f"{location}: {_fault_text(fault)}"


def _fault_text(fault: ErrorDetails) -> str:
    """Say in plain words what is wrong, without the value, which may be a secret."""
    kind = fault["type"]
    context = fault.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(fault["loc"][-1])
        return f"unknown key{suggestion(key, _KEYS)}"
    if kind == "union_tag_invalid":
        kinds = context["expected_tags"].replace("'", "")
        near_kind = suggestion(context["tag"], kinds.split(", "))
        return f"unknown kind{near_kind}; the kinds are {kinds}"
    if kind in _PLAIN:
        return _PLAIN[kind]
    # an error of our own validators, else the words of pydantic
    return str(context.get("error") or fault["msg"].replace("Input should", "must"))


def _location_of(fault: ErrorDetails, document: Mapping[str, Any]) -> str:
    """Keys from the outermost table to the fault."""
    location: list[str] = []
    for part in fault["loc"]:
        if isinstance(part, str):
            location.append(part)
        else:
            location.append(f"number {part + 1}")
    # of a rule and a channel, the name says more than the position and the kind
    match fault["loc"]:
        case ["rules", int(number), *_]:
            table = document["rules"][number]
            name = number + 1
            if isinstance(table, dict):
                name = table.get("name", name)
            location[:3] = [f"rule {name!r}"]
        case ["channels", str(name), *_]:
            location[:3] = [f"channel {name!r}"]
    return ": ".join(location)
