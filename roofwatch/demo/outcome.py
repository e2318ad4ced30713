"""Compare the planted changes with the regressions found, commit by commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from roofwatch.db.values import Regression, RegressionState
from roofwatch.demo.scenario import MadeCommit
from roofwatch.tables import verdict


@dataclass(frozen=True)
class CommitOutcome:
    commit: MadeCommit
    found: tuple[Regression, ...]
    """Open regressions and improvements of the commit."""

    @property
    def is_found(self) -> bool:
        planted = self.commit.step.planted
        return planted is not None and any(
            regression.is_confirmed and (regression.kernel, regression.verdict) == (planted.kernel, planted.verdict)
            for regression in self.found
        )

    @property
    def false_alarms(self) -> tuple[Regression, ...]:
        """Confirmed changes that were not planted; unconfirmed ones do not count."""
        planted = self.commit.step.planted
        return tuple(
            regression
            for regression in self.found
            if regression.is_confirmed
            and (planted is None or (regression.kernel, regression.verdict) != (planted.kernel, planted.verdict))
        )

    @property
    def is_correct(self) -> bool:
        return not self.false_alarms and (self.commit.step.planted is None or self.is_found)


def outcomes(commits: Sequence[MadeCommit], regressions: Iterable[Regression]) -> list[CommitOutcome]:
    """Assign regressions to the commits, in commit order."""
    open_regressions = [regression for regression in regressions if regression.state is RegressionState.OPEN]
    return [
        CommitOutcome(commit, tuple(found for found in open_regressions if found.commit.sha == commit.sha))
        for commit in commits
    ]


def outcomes_table(judged: Iterable[CommitOutcome]) -> Table:
    table = Table(title="sixteen commits", title_justify="left", header_style="bold")
    for column in ("commit", "subject", "planted", "found", "result"):
        table.add_column(column, overflow="fold")
    for outcome in judged:
        step = outcome.commit.step
        planted = "" if step.planted is None else f"{step.planted.kernel} {step.planted.verdict}: {step.planted.what}"
        table.add_row(outcome.commit.sha[:8], Text(step.subject), Text(planted), _found_text(outcome), _result(outcome))
    return table


def _found_text(outcome: CommitOutcome) -> Text:
    if not outcome.found:
        return Text("nothing", style="dim")
    lines = [
        Text.assemble(
            verdict(str(regression.verdict)),
            "" if regression.is_confirmed else " (suspected, not confirmed)",
            f", {regression.cause}: {regression.summary}",
        )
        for regression in outcome.found
    ]
    return Text("\n").join(lines)


def _result(outcome: CommitOutcome) -> Text:
    if outcome.false_alarms:
        return Text("false alarm", style="bold red")
    if outcome.commit.step.planted is None:
        return Text("quiet", style="dim")
    return Text("found", style="bold green") if outcome.is_found else Text("missed", style="bold red")
