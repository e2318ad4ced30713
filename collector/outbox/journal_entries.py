"""The lines of a journal: the header that binds it to a run, and one entry for each result."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from roofwatch.collector.record.machine import Ceiling, DeviceState, Environment, Telemetry
from roofwatch.collector.record.measurement import Block
from roofwatch.collector.record.record import RunRecord, utc_now
from roofwatch.collector.record.results import Accuracy, CaseProfile, StaticFacts
from roofwatch.collector.run_plan import HARNESS_VERSION, RunPlan
from roofwatch.collector.suite import SuiteAt, digest_of_suite


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MeasuredSuite(_Line):
    """What one side of a run measures."""

    run_id: UUID
    project: str
    sha: str
    sources: str
    """Digest of the suite's files and of what differs from the commit."""


class Header(_Line):
    """What a journal belongs to. All of it but the ids and the time must be equal for a run to go on."""

    format: Literal[1] = 1
    harness_version: str
    started_at: AwareDatetime
    asked: dict[str, Any]
    """What was asked for, by option, as JSON has it."""
    suites: dict[str, MeasuredSuite]
    """By side; one that has no other is called `run`."""
    pair_id: UUID | None = None


class CompiledCase(_Line):
    case_id: str
    implementation: str
    static_facts: tuple[StaticFacts, ...]
    """May be none: an implementation that launches nothing of its own."""


class TimedStep(_Line):
    """One block, or the failure that came in its place, or that blocks were given up."""

    case_id: str
    implementation: str
    blocks_before: int
    """Of those that came before, these count."""
    block: Block | None
    state: dict[str, Any]
    """What is known of the measurement after this step, beside its blocks."""


class Entry(_Line):
    """What came back. Beside `side`, `spent_ns` and `seen` exactly one field is set."""

    side: str
    spent_ns: dict[str, int] = {}
    """Wall time since the entry before, by activity."""
    seen: Telemetry | None = None
    """Of the device since the entry before, of whichever side."""
    environment: Environment | None = None
    ceilings: tuple[Ceiling, ...] | None = None
    at_ceilings: tuple[DeviceState, ...] = ()
    """With `ceilings`: of the device while they were measured."""
    accuracy: Accuracy | None = None
    compiled: CompiledCase | None = None
    timed: TimedStep | None = None
    profile: CaseProfile | None = None
    share: RunRecord | None = None
    """What another machine measured of a run that is spread over several."""


def differences(before: Header, now: Header) -> Iterator[str]:
    """Why a run cannot go on from a journal, in words; nothing where it can."""
    if before.harness_version != now.harness_version:
        yield f"roofwatch was {before.harness_version} then and is {now.harness_version} now"
    if before.suites.keys() != now.suites.keys():
        yield f"it is of {' and '.join(before.suites)}, and this is {' and '.join(now.suites)}"
        return
    for side, then in before.suites.items():
        suite = now.suites[side]
        of_side = "" if side == "run" else f" of the {side}"
        if then.project != suite.project:
            yield f"the project{of_side} was {then.project} then and is {suite.project} now"
        if then.sha != suite.sha:
            yield f"the commit{of_side} was {then.sha[:12]} then and is {suite.sha[:12]} now"
        elif then.sources != suite.sources:
            yield f"files of the suite{of_side} were changed since"
    for option in sorted(before.asked.keys() | now.asked.keys()):
        if before.asked.get(option) != now.asked.get(option):
            yield f"{option} was {before.asked.get(option)} then and is {now.asked.get(option)} now"


def changed_fields(then: BaseModel, now: BaseModel) -> str:
    """The fields that differ, in words; empty where none does."""
    before, after = then.model_dump(mode="json"), now.model_dump(mode="json")
    return ", ".join(
        f"{name} was {before.get(name)} and is {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


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
