"""The rules of alerts, a TOML file without secret addresses, and the owners of kernels. Pure.

A kernel is owned by the table in the rules, else by its source file and GitHub's CODEOWNERS.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from roofwatch.ci.messages import AlertError
from roofwatch.db.alerts.values import Severity

Name = Annotated[str, StringConstraints(pattern=r"^[\w][\w. -]{0,59}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Repository = Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*/[\w.-]+$")]
Owner = Annotated[str, StringConstraints(pattern=r"^\S{1,200}$")]
RunCount = Annotated[int, Field(ge=1, le=200)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AddressedChannel(_Table):
    """A channel with a secret address."""

    kind: Literal["apprise", "webhook"]
    url_env: Variable | None = None
    """Environment variable with the address."""
    url_file: str | None = None
    """File with the address, relative to the rules."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.url_env is None) == (self.url_file is None):
            raise ValueError("name where the address is: either url_env or url_file")
        return self


class IssueChannel(_Table):
    """Issues of a repository on GitHub."""

    kind: Literal["github"]
    repository: Repository
    token_env: Variable = "GITHUB_TOKEN"  # noqa: S105  the name of a variable
    """Environment variable with the token."""
    labels: tuple[Name, ...] = ()


Channel = Annotated[AddressedChannel | IssueChannel, Field(discriminator="kind")]


class _Rule(_Table):
    name: Name
    severity: Severity = Severity.WARNING
    channels: tuple[Name, ...] = Field(min_length=1)
    cool_down_hours: float = Field(default=24.0, ge=0)
    """Minimum time between two notifications of one alert."""
    escalate_after_hours: float | None = Field(default=None, gt=0)
    """Notify `escalate_to` if nobody acknowledged the alert by then."""
    escalate_to: tuple[Name, ...] = ()
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

    @property
    def cool_down(self) -> timedelta:
        return timedelta(hours=self.cool_down_hours)

    def covers_project(self, project: str) -> bool:
        return matches(project, self.projects)

    def covers_runner(self, runner_class: str) -> bool:
        return matches(runner_class, self.runners)


class _KernelRule(_Rule):
    kernels: tuple[str, ...] = ("*",)
    """Patterns of kernels."""
    tags: tuple[str, ...] = ()
    """Only cases with all of these."""

    def covers_case(self, kernel: str, tags: Collection[str]) -> bool:
        return matches(kernel, self.kernels) and set(self.tags) <= set(tags)


class RegressionRule(_KernelRule):
    """A regression that is certain enough for an alert."""

    kind: Literal["regression"]
    min_relative_change: float = Field(default=0.0, ge=0)
    """Smallest change of a time or of memory; failures and wrong results are always reported."""
    bisects: bool = False
    """Request a bisection."""


class LevelRule(_KernelRule):
    """A metric above or below a limit, or grown against older runs, by the median of the newest runs."""

    kind: Literal["level"]
    metric: Literal[
        "flop_per_s",
        "memory_bytes_per_s",
        "utilisation",
        "median_ns",
        "host_ns",
        "peak_allocated_bytes",
        "rmse_ratio",
    ]
    at_least: float | None = Field(default=None, gt=0)
    """In the metric's unit."""
    at_most: float | None = Field(default=None, gt=0)
    grown_by: float | None = Field(default=None, gt=0)
    """Relative: 0.5 is half as much again."""
    runs: RunCount = 3
    against_runs: RunCount = 20
    """Earlier runs, whose median is the usual value for `grown_by`."""

    @model_validator(mode="after")
    def _has_one_limit(self) -> Self:
        if [self.at_least, self.at_most, self.grown_by].count(None) != 2:
            raise ValueError("set one of at_least, at_most and grown_by")
        return self


class SilenceRule(_Rule):
    """A runner that stopped reporting results."""

    kind: Literal["silence"]
    after_hours: float | None = Field(default=None, gt=0)
    """Default: three times its usual longest interval."""


Rule = Annotated[RegressionRule | LevelRule | SilenceRule, Field(discriminator="kind")]


class KernelOwners(_Table):
    """Owners of kernels whose source file is unknown."""

    kernels: tuple[str, ...] = Field(min_length=1)
    owners: tuple[Owner, ...]


class AlertRules(_Table):
    """The whole file."""

    channels: dict[Name, Channel] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    owners: tuple[KernelOwners, ...] = ()
    """The last match counts, as in CODEOWNERS."""
    codeowners: str | None = None
    """Path of a CODEOWNERS file or a checkout, relative to the rules."""
    codeowners_repository: Repository | None = None
    """Repository on GitHub whose CODEOWNERS is read."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names):
            raise ValueError(f"two rules have the same name: {', '.join(names)}")
        for rule in self.rules:
            unknown = next((name for name in (*rule.channels, *rule.escalate_to) if name not in self.channels), None)
            if unknown is not None:
                known = ", ".join(self.channels) or "none"
                raise ValueError(f"rule {rule.name!r}: unknown channel {unknown!r}; there is: {known}")
        if self.codeowners is not None and self.codeowners_repository is not None:
            raise ValueError("set either codeowners or codeowners_repository")
        return self


def parse_rules(text: str) -> AlertRules:
    """Read a file of rules.

    Raises:
        AlertError: it is not valid; the message has the place, but not the value, which may be a secret address.
    """
    try:
        return AlertRules.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise AlertError(f"not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).lstrip(".")
        raise AlertError(f"{place or 'the file'}: {first['msg'].removeprefix('Value error, ')}") from None


def matches(text: str, patterns: Iterable[str]) -> bool:
    """Return whether a text matches one of the shell patterns."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


# --- owners

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for the file, in this order."""
OWNER = re.compile(r"@[\w-]+(/[\w.-]+)?|[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+", re.ASCII)


@dataclass(frozen=True)
class CodeOwners:
    """The valid lines of a CODEOWNERS file."""

    lines: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = ()

    def owners_of(self, path: str) -> tuple[str, ...]:
        """Return the owners of a path from the root of the repository: those of the last matching line."""
        return next((owners for pattern, owners in reversed(self.lines) if pattern.fullmatch(path)), ())


@dataclass(frozen=True)
class Ownership:
    table: Sequence[KernelOwners] = ()
    codeowners: CodeOwners | None = None
    source_paths: Mapping[str, str] = field(default_factory=dict)
    """By kernel, from the root of the repository."""

    def owners_of(self, kernels: Iterable[str]) -> tuple[str, ...]:
        """Return the owners of some kernels, each once, in the order of the kernels."""
        return tuple(dict.fromkeys(owner for kernel in kernels for owner in self._of_kernel(kernel)))

    def _of_kernel(self, kernel: str) -> Sequence[str]:
        for line in reversed(self.table):
            if matches(kernel, line.kernels):
                return line.owners
        path = self.source_paths.get(kernel)
        return () if path is None or self.codeowners is None else self.codeowners.owners_of(path)


def parse_codeowners(text: str) -> CodeOwners:
    """Read a CODEOWNERS file; invalid lines are skipped, and a pattern without owners has none.

    Patterns are gitignore's without `!`, `[ ]` and escapes; `docs/*` matches only files directly in `docs`.

    Source: GitHub's "About code owners", and git's gitignore(5).
    """
    lines = []
    for line in text.splitlines():
        pattern, *owners = line.partition("#")[0].split() or [""]
        is_supported = pattern and not set("!\\[]") & set(pattern)
        if is_supported and all(OWNER.fullmatch(owner) for owner in owners):
            lines.append((_compiled(pattern), tuple(owners)))
    return CodeOwners(tuple(lines))


def _compiled(pattern: str) -> re.Pattern[str]:
    """Translate a pattern to a regular expression for whole paths."""
    *steps, last = pattern.strip("/").split("/")
    expression = "" if "/" in pattern.rstrip("/") else "(?:.*/)?"
    expression += "".join("(?:[^/]+/)*" if step == "**" else f"{_translated(step)}/" for step in steps)
    expression += ".+" if last == "**" else _translated(last)
    if pattern.endswith("/"):
        expression += "/.*"
    elif last != "**" and (last != "*" or not steps):
        expression += "(?:/.*)?"
    return re.compile(expression, re.DOTALL)


def _translated(step: str) -> str:
    return re.escape(step).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
