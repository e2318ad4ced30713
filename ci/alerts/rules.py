"""The rules of alerts, a TOML file: who is notified of what. Pure.

The file names channels, never their addresses: an address is a secret, in an environment variable or a file of its own.
docs/how-to/alerts.md has an example with every table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from roofwatch.ci.errors import AlertError
from roofwatch.db.alerts.values import Severity

_NAME = r"^[\w][\w. -]{0,59}$"
Name = Annotated[str, StringConstraints(pattern=_NAME)]
Owner = Annotated[str, StringConstraints(pattern=r"^\S{1,200}$")]
_REPOSITORY = r"^[\w-][\w.-]*/[\w.-]+$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AddressedChannel(_Table):
    """A channel with a secret address."""

    kind: Literal["apprise", "email", "webhook"]
    url_env: str | None = Field(default=None, pattern=_VARIABLE)
    """The environment variable with the address."""
    url_file: str | None = None
    """The file with the address, from the folder of the rules."""

    @model_validator(mode="after")
    def _addressed_once(self) -> Self:
        if (self.url_env is None) == (self.url_file is None):
            raise ValueError("say where its address is, in url_env or in url_file, and in one of them only")
        return self


class IssueChannel(_Table):
    """Issues of a repository on GitHub."""

    kind: Literal["github"]
    repository: str = Field(pattern=_REPOSITORY)
    token_env: str = Field(default="GITHUB_TOKEN", pattern=_VARIABLE)
    """The environment variable with the token."""
    labels: tuple[Name, ...] = ()


Channel = Annotated[AddressedChannel | IssueChannel, Field(discriminator="kind")]


class _Rule(_Table):
    name: Name
    severity: Severity = Severity.WARNING
    channels: tuple[Name, ...] = Field(min_length=1)
    cool_down_hours: float = Field(default=24.0, ge=0)
    """Who was notified is not notified again within this time, however often the condition comes and goes."""
    escalate_after_hours: float | None = Field(default=None, gt=0)
    """If nobody has acknowledged it by then, others are notified."""
    escalate_to: tuple[Name, ...] = ()
    tells_resolved: bool = True
    within_days: float = Field(default=30.0, gt=0)
    """What began earlier raises no alert; an alert that fires already goes on."""
    projects: tuple[str, ...] = ("*",)
    runners: tuple[str, ...] = ("*",)
    """Patterns of runner classes."""

    @model_validator(mode="after")
    def _escalates_wholly(self) -> Self:
        if (self.escalate_after_hours is None) != (not self.escalate_to):
            raise ValueError("escalate_after_hours and escalate_to go together: after how long, and to whom")
        return self

    @property
    def cool_down(self) -> timedelta:
        return timedelta(hours=self.cool_down_hours)

    def covers_project(self, project: str) -> bool:
        return matches(project, self.projects)

    def covers_runner(self, runner_class: str) -> bool:
        """Whether a runner class is covered. What belongs to no runner, as machine code, is covered by `*` alone."""
        return matches(runner_class, self.runners)


class _KernelRule(_Rule):
    kernels: tuple[str, ...] = ("*",)
    """Patterns of kernels."""
    tags: tuple[str, ...] = ()
    """Only cases with all of these."""

    def covers_case(self, kernel: str, tags: Collection[str]) -> bool:
        return matches(kernel, self.kernels) and set(self.tags) <= set(tags)


class RegressionRule(_KernelRule):
    """A regression that is sure enough to call somebody."""

    kind: Literal["regression"]
    min_relative_change: float = Field(default=0.0, ge=0)
    """Of the largest time or memory that moved; failures and wrong results are always reported."""
    bisects: bool = False
    """Ask for a bisection, by whichever runner takes the next."""


class FloorRule(_KernelRule):
    """A rate below its floor."""

    kind: Literal["floor"]
    metric: Literal["flop_per_s", "memory_bytes_per_s"]
    floor: float = Field(gt=0)
    runs: int = Field(default=3, ge=1, le=50)
    """Newest runs, whose median counts."""

    @property
    def least(self) -> float:
        return self.floor


class LimitRule(_KernelRule):
    """A time, the host's time or the memory of a launch, above its limit."""

    kind: Literal["limit"]
    metric: Literal["median_ns", "host_ns", "peak_allocated_bytes"]
    limit: float = Field(gt=0)
    """In the metric's unit: ns or bytes."""
    runs: int = Field(default=3, ge=1, le=50)
    """Newest runs, whose median counts."""


class UtilisationRule(_KernelRule):
    """A utilisation below its objective."""

    metric: ClassVar[str] = "utilisation"
    kind: Literal["utilisation"]
    objective: float = Field(gt=0, le=1)
    runs: int = Field(default=3, ge=1, le=50)

    @property
    def least(self) -> float:
        return self.objective


class AccuracyRule(_KernelRule):
    """An error that has grown, slowly or at once, against that of older runs."""

    metric: ClassVar[str] = "rmse_ratio"
    kind: Literal["accuracy"]
    grown_by: float = Field(gt=0)
    """Relative: 0.5 is half as much again."""
    runs: int = Field(default=3, ge=1, le=50)
    against_runs: int = Field(default=20, ge=1, le=200)
    """The runs before these, whose median is the usual error."""


class SilenceRule(_Rule):
    """A runner that reports no results any more."""

    kind: Literal["silence"]
    after_hours: float | None = Field(default=None, gt=0)
    times_usual: float | None = Field(default=None, gt=1)
    """Times the usual interval between two results. With neither: three times the longest usual one."""


LevelRule = FloorRule | LimitRule | UtilisationRule | AccuracyRule
Rule = Annotated[RegressionRule | LevelRule | SilenceRule, Field(discriminator="kind")]


class OwnersOfKernels(_Table):
    """Who owns kernels whose source file is not known."""

    kernels: tuple[str, ...] = Field(min_length=1)
    owners: tuple[Owner, ...]


class AlertRules(_Table):
    """The whole file."""

    channels: dict[Name, Channel] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    owners: tuple[OwnersOfKernels, ...] = ()
    """The last that matches counts, as in CODEOWNERS."""
    codeowners: str | None = None
    """Path of a CODEOWNERS file or a checkout, from the folder of the rules."""
    codeowners_repository: str | None = Field(default=None, pattern=_REPOSITORY)
    """Repository on GitHub whose CODEOWNERS is read."""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [rule.name for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two rules are called {twice[0]!r}: an alert is known again by its rule's name")
        for rule in self.rules:
            unknown = [name for name in (*rule.channels, *rule.escalate_to) if name not in self.channels]
            if unknown:
                known = ", ".join(self.channels) or "none"
                raise ValueError(f"rule {rule.name!r}: there is no channel {unknown[0]!r}; there is: {known}")
        if self.codeowners is not None and self.codeowners_repository is not None:
            raise ValueError("codeowners and codeowners_repository are two places of one file: name one of them")
        return self


def parse_rules(text: str) -> AlertRules:
    """Read a file of rules.

    Raises:
        AlertError: it is not TOML, or says something that is not known or cannot be; the message says where.
    """
    try:
        return AlertRules.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise AlertError(f"not TOML: {error}") from None
    except ValidationError as error:
        # what was given is left out: it may be an address that should not be in there
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = _place(first["loc"])
        raise AlertError(f"{f'{where}: ' if where else ''}{first['msg'].removeprefix('Value error, ')}") from None


def matches(text: str, patterns: Iterable[str]) -> bool:
    """Whether a text matches one of the patterns with `*`, `?` and `[...]`."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _place(steps: Sequence[Any]) -> str:
    """`rules[2].floor`, counted from 1; without the word by which pydantic tells kinds apart."""
    place = ""
    for number, step in enumerate(steps):
        if isinstance(step, int):
            place += f"[{step + 1}]"
        elif not (number == 2 and steps[0] in {"rules", "channels"}):
            place += f".{step}" if place else str(step)
    return place
