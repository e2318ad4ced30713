"""What the kinds of alert rules share, and the rules about kernels. Pure."""

import re
from collections.abc import Collection
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from roofwatch.ci.alerts.tables import (
    ChannelNames,
    Limit,
    Percentage,
    RulesTable,
    matches,
    suggestion,
)
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


def _known_metric(name: str) -> str:
    """Refuse a metric that no rule can judge, and propose the nearest name."""
    if name in _JUDGED:
        return name
    # of other names, an imported metric whose better direction is known
    is_own_metric = name in METRICS or not is_metric(name)
    if is_own_metric or metric(name).better is Better.UNKNOWN:
        raise ValueError(
            f"unknown metric{suggestion(name, _JUDGED)}; the metrics are {', '.join(_JUDGED)}"
        )
    return name


class BaseRule(RulesTable):
    """What rules of every kind have."""

    name: Annotated[str, StringConstraints(pattern=r"^\w[^\x00-\x1f\x7f]{0,79}$")]
    """Unique among the rules; alerts refer to it."""
    severity: Severity = Severity.WARNING
    channels: ChannelNames = Field(min_length=1)
    """Names of channels of the file."""
    cool_down_hours: float = Field(default=24.0, ge=0)
    """Minimum time between two notifications of one alert."""
    escalate_after_hours: float | None = Field(default=None, gt=0)
    """Notify `escalate_to` if nobody acknowledged the alert by then."""
    escalate_to: ChannelNames = ()
    remind_after_days: float = Field(default=7.0, ge=0)
    """Repeat the message until somebody acknowledges the alert; 0 for never."""
    notify_resolved: bool = True
    """Send a message too when the alert ends."""
    within_days: float = Field(default=30.0, gt=0)
    """What began earlier raises no alert; an alert that is firing continues."""
    projects: tuple[str, ...] = ("*",)
    """Patterns of projects."""
    runners: tuple[str, ...] = ("*",)
    """Patterns of runner classes; machine code has no runner class and matches only `*`."""

    @model_validator(mode="after")
    def _escalation_is_complete(self) -> Self:
        if (self.escalate_after_hours is None) != (not self.escalate_to):
            raise ValueError("escalate_after_hours and escalate_to need each other")
        return self

    def covers_runner(self, runner_class: str) -> bool:
        """Whether results of a runner class are the rule's."""
        return matches(runner_class, self.runners)


class KernelRule(BaseRule):
    """A rule about the cases of some kernels."""

    kernels: tuple[str, ...] = ("*",)
    """Patterns of kernels."""
    families: tuple[str, ...] = ("*",)
    """Patterns of families of kernels."""
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
        """Whether a case is the rule's, by all of its patterns."""
        if not matches(kernel, self.kernels):
            return False
        if not matches(family, self.families):
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
    """Relative change from the older values, for rates."""
    grows_by: Percentage | None = None
    """Relative change from the older values, for times, memory and errors."""
    against: Annotated[str, StringConstraints(pattern=r"^\S(.{0,198}\S)?$")] = "14 days"
    """What `drops_by` and `grows_by` are compared with: `N days` before the newest runs, a tag or
    commit, or `change`: what was before a regression that the analysis found."""
    over: Literal["any", "geomean"] = "any"
    """Judge each case, or the geometric mean of all covered cases of a device."""
    runs: Annotated[int, Field(ge=1, le=200)] = 3
    """The median of so many newest runs is judged."""

    @property
    def definition(self) -> Metric:
        return metric(self.metric)

    @property
    def limit(self) -> float | None:
        """The fixed limit in the metric's unit; None if older values are the reference."""
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
