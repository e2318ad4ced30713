"""What the demo planted against what roofwatch said, commit by commit."""

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
    said: tuple[Regression, ...]
    """What stands against the commit, or to its credit; dismissed suspicions do not count."""

    @property
    def is_found(self) -> bool:
        planted = self.commit.step.planted
        return planted is not None and any(
            regression.is_confirmed and (regression.kernel, regression.verdict) == (planted.kernel, planted.verdict)
            for regression in self.said
        )

    @property
    def false_alarms(self) -> tuple[Regression, ...]:
        """What the commit is accused of and did not do. A suspicion that is said to be unconfirmed accuses nobody."""
        planted = self.commit.step.planted
        return tuple(
            regression
            for regression in self.said
            if regression.is_confirmed
            and (planted is None or (regression.kernel, regression.verdict) != (planted.kernel, planted.verdict))
        )

    @property
    def is_well(self) -> bool:
        return not self.false_alarms and (self.commit.step.planted is None or self.is_found)


def outcomes(commits: Sequence[MadeCommit], regressions: Iterable[Regression]) -> list[CommitOutcome]:
    """Hold the findings against the history, in the order of its commits."""
    standing = [regression for regression in regressions if regression.state is RegressionState.OPEN]
    return [
        CommitOutcome(commit, tuple(found for found in standing if found.commit.sha == commit.sha))
        for commit in commits
    ]


def outcomes_table(judged: Iterable[CommitOutcome]) -> Table:
    table = Table(title="sixteen commits, measured and judged", title_justify="left", header_style="bold")
    for column in ("commit", "subject", "planted", "roofwatch says", "result"):
        table.add_column(column, overflow="fold")
    for outcome in judged:
        step = outcome.commit.step
        planted = "" if step.planted is None else f"{step.planted.kernel} {step.planted.verdict}: {step.planted.what}"
        table.add_row(outcome.commit.sha[:8], Text(step.subject), Text(planted), _said(outcome), _result(outcome))
    return table


def _said(outcome: CommitOutcome) -> Text:
    if not outcome.said:
        return Text("nothing", style="dim")
    lines = [
        Text.assemble(
            verdict(str(regression.verdict)),
            "" if regression.is_confirmed else " (suspected, not confirmed)",
            f", {regression.cause}: {regression.summary}",
        )
        for regression in outcome.said
    ]
    return Text("\n").join(lines)


def _result(outcome: CommitOutcome) -> Text:
    if outcome.false_alarms:
        return Text("false alarm", style="bold red")
    if outcome.commit.step.planted is None:
        return Text("quiet", style="dim")
    return Text("found", style="bold green") if outcome.is_found else Text("missed", style="bold red")
