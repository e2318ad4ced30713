"""Print what two records amount to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofwatch.ci.report.pull_request import PullRequestJudgement


def print_judgement(judged: PullRequestJudgement) -> None:
    """The tables of a judgement, and its verdict in a line."""
    from roofwatch import tables
    from roofwatch.terminal import print_note, print_table

    for table in tables.judgement(judged):
        print_table(table)
    print_note(tables.verdict_line(judged))
