"""What a run is bound to when it is cut short."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from roofwatch.collector.outbox.journal_lines import Header, MeasuredSuite
from roofwatch.collector.record.record import utc_now
from roofwatch.collector.revision import SuiteAt
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite_digest import digest_of_suite
from roofwatch.collector.suite_run import HARNESS_VERSION

ALONE = "run"

_PLAN = TypeAdapter(RunPlan)


def header_of(
    suites: Mapping[str, SuiteAt],
    plan: RunPlan,
    *,
    pair_id: uuid.UUID | None = None,
    asked: Mapping[str, Any] | None = None,
) -> Header:
    """The header of a run that begins now.

    Args:
        suites: What is measured, by side; one that has no other is called `run`.
        plan: What of it, and how long.
        pair_id: Of two sides.
        asked: What else must be equal for the run to go on, as JSON has it.

    Raises:
        GitError: the repository of a suite cannot be read.
    """
    return Header(
        harness_version=HARNESS_VERSION,
        started_at=utc_now(),
        asked=_PLAN.dump_python(plan, mode="json") | dict(asked or {}),
        suites={
            side: MeasuredSuite(
                run_id=uuid.uuid4(), project=suite.project, sha=suite.commit.sha, sources=digest_of_suite(suite.source)
            )
            for side, suite in suites.items()
        },
        pair_id=pair_id,
    )
