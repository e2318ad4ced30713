"""Counts of what a call does in torch: each change is certain from its first run."""

from __future__ import annotations

import pytest

from roofwatch.ci.history.operator_changes import operator_findings
from roofwatch.model.verdict import Status, Verdict
from tests.builders import make_commit_ref
from tests.ci.values import make_series


@pytest.mark.parametrize(
    ("metric", "values", "changes"),
    [
        ("moved_bytes", [1_000.0, 1_000.0, 2_000.0], [(2, Verdict.REGRESSED)]),
        ("moved_bytes", [1_000.0, 1_005.0], []),
        ("peak_bytes", [2_000.0, 1_000.0], [(1, Verdict.IMPROVED)]),
        ("wait_count", [0.0, 1.0, 0.0], [(1, Verdict.REGRESSED), (2, Verdict.IMPROVED)]),
    ],
)
def test_a_count_that_differs_between_two_commits_is_a_confirmed_change(
    metric: str, values: list[float], changes: list[tuple[int, Verdict]]
) -> None:
    series = make_series(values, metric, runner_class="", function="torch operators")

    findings = list(operator_findings(series))

    assert [(finding.change.commit, finding.change.verdict) for finding in findings] == [
        (make_commit_ref(number), verdict) for number, verdict in changes
    ]
    assert all(finding.status is Status.CONFIRMED for finding in findings)
