"""The rules of alerts: a TOML file without secret addresses. Pure."""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from roofwatch.ci.messages import AlertError
from roofwatch.model.alert import Severity
from roofwatch.model.metrics import METRICS, Better, Metric, is_metric, metric, parse_amount

_JUDGED = (
    "flop_per_s",
    "memory_bytes_per_s",
    "bus_bytes_per_s",
    "tokens_per_s",
    "utilisation",
    "median_ns",
    "ratio_to_reference",
    "host_ns",
    "peak_allocated_bytes",
    "rmse_ratio",
)
"""Metrics of rules, apart from imported ones."""


def _percentage(value: object) -> float:
    """Read `"5%"` as 0.05. A bare number is refused: 5 could mean 5 % or five times."""
    if not isinstance(value, str):
        raise ValueError('write a percentage in quotes, such as "5%"')  # noqa: TRY004 -- pydantic reports a ValueError
    return parse_amount(value, "share")


def _known_metric(name: str) -> str:
    if name in _JUDGED:
        return name
    # of other names, an imported metric whose better direction is known
    is_own_metric = name in METRICS or not is_metric(name)
    if is_own_metric or metric(name).better is Better.UNKNOWN:
        raise ValueError(
            f"unknown metric{_suggestion(name, _JUDGED)}; the metrics are {', '.join(_JUDGED)}"
        )
    return name


def _known_channels(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    channels = info.context
    if channels is None:  # the channels themselves are not valid, which is reported already
        return names
    for name in names:
        if name not in channels:
            raise ValueError(f"unknown channel {name!r}; there is: {', '.join(channels) or 'none'}")
    return names


def _suggestion(word: str, words: Iterable[str]) -> str:
    near = get_close_matches(word, words, n=1)
    if not near:
        return ""
    return f"; did you mean {near[0]!r}?"


Name = Annotated[str, StringConstraints(pattern=r"^[\w][\w. -]{0,59}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
ChannelNames = Annotated[tuple[Name, ...], AfterValidator(_known_channels)]
Percentage = Annotated[float, BeforeValidator(_percentage), Field(ge=0)]
Limit = Annotated[float, Field(gt=0)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AddressedChannel(_Table):
    """A channel with a secret address, which is in an environment variable or in a file beside the
    rules.
    """

    kind: Literal["apprise", "webhook"]
    url_env: Variable | None = None
    url_file: str | None = None
    secret_env: Variable | None = None
    """Environment variable with the key that signs a webhook's messages."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.url_env is None) == (self.url_file is None):
            raise ValueError("name where the address is: either url_env or url_file")
        if self.secret_env is not None and self.kind != "webhook":
            raise ValueError("secret_env is only for webhooks")
        return self


class IssueChannel(_Table):
    kind: Literal["github"]
    repository: Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*/[\w.-]+$")]
    token_env: Variable = "GITHUB_TOKEN"  # noqa: S105  the name of a variable
    labels: tuple[Name, ...] = ()


Channel = Annotated[AddressedChannel | IssueChannel, Field(discriminator="kind")]


class _Rule(_Table):
    name: Annotated[str, StringConstraints(pattern=r"^\w[^\x00-\x1f\x7f]{0,79}$")]
    severity: Severity = Severity.WARNING
    channels: ChannelNames = Field(min_length=1)
    cool_down_hours: float = Field(default=24.0, ge=0)
    """Minimum time between two notifications of one alert."""
    escalate_after_hours: float | None = Field(default=None, gt=0)
    """Notify `escalate_to` if nobody acknowledged the alert by then."""
    escalate_to: ChannelNames = ()
    remind_after_days: float = Field(default=7.0, ge=0)
    """Repeat the message until somebody acknowledges the alert; 0 for never."""
    notify_resolved: bool = True
    within_days: float = Field(default=30.0, gt=0)
    """What began earlier raises no alert; an alert that is firing continues."""
    projects: tuple[str, ...] = ("*",)
    runners: tuple[str, ...] = ("*",)
    """Patterns of runner classes; machine code has no runner class and matches only `*`."""

    @model_validator(mode="after")
    def _escalation_is_complete(self) -> Self:
        if (self.escalate_after_hours is None) != (not self.escalate_to):
            raise ValueError("escalate_after_hours and escalate_to need each other")
        return self

    def covers_runner(self, runner_class: str) -> bool:
        return matches(runner_class, self.runners)


class KernelRule(_Rule):
    kernels: tuple[str, ...] = ("*",)
    families: tuple[str, ...] = ("*",)
    tags: tuple[str, ...] = ()
    """Only cases with all of these."""
    exclude_implementations: tuple[str, ...] = ()
    """Patterns of implementations that raise no alert."""

    def covers_case(
        self,
        kernel: str,
        family: str,
        tags: Collection[str],
    ) -> bool:
        if not matches(kernel, self.kernels) or not matches(family, self.families):
            return False
        return set(self.tags) <= set(tags)


class RegressionRule(KernelRule):
    """A regression that is certain enough for an alert."""

    kind: Literal["regression"]
    min_relative_change: Percentage = 0.0
    """Smallest change of a time or of memory; failures and wrong results are always reported."""
    bisects: bool = False
    """Request a bisection."""
    unconfirmed_after_days: Annotated[float, Field(ge=0, le=365)] = 2.0
    """A possible slowdown that no pair has decided for so long raises one alert."""


class MetricRule(KernelRule):
    """A metric beyond a fixed limit, or worse than it was: the median of the newest runs counts.

    A metric with "higher is better" has a lower limit, `at_least` or `drops_by`; all others have an
    upper one.
    """

    kind: Literal["throughput", "level"]
    """The same rule: `throughput` reads better for rates, `level` for times, memory and errors."""
    metric: Annotated[str, AfterValidator(_known_metric)]
    at_least: Limit | None = None
    """In the metric's unit, or text with a unit: `"600 TFLOP/s"`; a share is a percentage."""
    at_most: Limit | None = None
    drops_by: Annotated[Percentage, Field(lt=1)] | None = None
    grows_by: Percentage | None = None
    against: Annotated[str, StringConstraints(pattern=r"^\S(.{0,198}\S)?$")] = "14 days"
    """What `drops_by` and `grows_by` are compared with: `N days` before the newest runs, a tag or
    commit, or `change`: what was before a regression that the analysis found."""
    over: Literal["any", "geomean"] = "any"
    """Judge each case, or the geometric mean of all covered cases of a device."""
    runs: Annotated[int, Field(ge=1, le=200)] = 3

    @property
    def definition(self) -> Metric:
        return metric(self.metric)

    @property
    def limit(self) -> float | None:
        return self.at_least or self.at_most

    @property
    def against_days(self) -> float | None:
        """How many days of earlier runs to compare with, if `against` says so."""
        days = re.fullmatch(r"(\d+(?:\.\d+)?) days?", self.against)
        if days is None:
            return None
        return float(days[1])

    @field_validator("against")
    @classmethod
    def _is_a_time_or_a_revision(cls, value: str) -> str:
        # no name of a tag or commit has a blank
        if " " in value and not re.fullmatch(r"\d+(\.\d+)? days?", value):
            raise ValueError(f'{value!r} is no time: write "14 days", a tag, a commit or "change"')
        return value

    @property
    def against_commit(self) -> str | None:
        """Tag or commit to compare with, if `against` is one."""
        if self.against == "change" or self.against_days is not None:
            return None
        return self.against

    @property
    def is_floor(self) -> bool:
        """Whether a lower value is worse."""
        return self.definition.better is Better.HIGHER

    def is_beyond(self, ratio: float) -> bool:
        """Return whether a ratio of the new value to its reference is worse than allowed."""
        if self.is_floor:
            return ratio < 1 - (self.drops_by or 0.0)
        return ratio > 1 + (self.grows_by or 0.0)

    @field_validator("at_least", "at_most", mode="before")
    @classmethod
    def _with_unit(cls, value: object, info: ValidationInfo) -> object:
        # without a valid metric, which is reported already, the unit is unknown
        if not isinstance(value, str) or "metric" not in info.data:
            return value
        return parse_amount(value, metric(info.data["metric"]).unit)

    @model_validator(mode="after")
    def _has_one_limit(self) -> Self:
        if self.is_floor:
            allowed = ("at_least", "drops_by")
        else:
            allowed = ("at_most", "grows_by")
        limit_names = ("at_least", "at_most", "drops_by", "grows_by")
        set_names = [name for name in limit_names if getattr(self, name) is not None]
        if len(set_names) != 1 or set_names[0] not in allowed:
            better = f"{self.definition.better} is better for {self.metric}"
            raise ValueError(f"{better}: set either {' or '.join(allowed)}")
        # a fixed limit is compared with nothing
        if self.limit is not None and "against" in self.model_fields_set:
            raise ValueError(f"against is only for {allowed[1]}")
        # 70 was meant as a percentage
        if self.limit is not None and self.limit > 1 and self.definition.unit == "share":
            raise ValueError(f'{set_names[0]} is a share: write a percentage, such as "70%"')
        if self.against == "change" and self.over == "geomean":
            raise ValueError(
                'against = "change" judges each case: remove over = "geomean", or compare with days'
            )
        return self


class SilenceRule(_Rule):
    """A runner that stopped reporting results."""

    kind: Literal["silence"]
    after_hours: float | None = Field(default=None, gt=0)
    """Default: three times its usual longest interval."""


Rule = Annotated[RegressionRule | MetricRule | SilenceRule, Field(discriminator="kind")]


class KernelOwners(_Table):
    """Owners of kernels whose source file is unknown."""

    kernels: tuple[str, ...] = Field(min_length=1)
    owners: tuple[Annotated[str, StringConstraints(pattern=r"^\S{1,200}$")], ...]


class AcknowledgeTable(_Table):
    """Links in messages that acknowledge an alert."""

    url: Annotated[str, StringConstraints(pattern=r"^https://[^\s?#]+[^\s?#/]$")]
    """Public address of the API."""
    secret_env: Variable
    """Environment variable with the key that signs them."""


class AlertRules(_Table):
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
    def _differ_in_name(cls, rules: tuple[_Rule, ...]) -> tuple[_Rule, ...]:
        names = [rule.name for rule in rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two rules have the name {name!r}")
        return rules

    def of(self, project: str) -> list[Rule]:
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
        context = channels if isinstance(channels, dict) else None
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


_KEYS = _keys_of(_Table)
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
    kind = fault["type"]
    context = fault.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(fault["loc"][-1])
        return f"unknown key{_suggestion(key, _KEYS)}"
    if kind == "union_tag_invalid":
        kinds = context["expected_tags"].replace("'", "")
        suggestion = _suggestion(context["tag"], kinds.split(", "))
        return f"unknown kind{suggestion}; the kinds are {kinds}"
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


def matches(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
