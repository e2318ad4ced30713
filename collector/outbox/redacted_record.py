"""A record without what must not leave the machine: in messages of failures, which hold paths, in settings, and in the
names of what was profiled.
"""

from __future__ import annotations

from typing import TypeVar

from roofwatch.collector.outbox.redaction import Kind, Redaction
from roofwatch.collector.record.case_profile import MOST_NAME, CaseProfile
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy, Counters, StaticFacts

_MAX_MESSAGE = 4_000
_NOT_FOR_OTHERS = ("_HOST", "_URL", "_URI", "_KEY", "_TOKEN")
"""Endings of settings whose values name a machine or open one."""

_Told = TypeVar("_Told", Measurement, Accuracy, StaticFacts)


def redact_record(record: RunRecord, redaction: Redaction) -> RunRecord:
    """The same record, as it may be shown; what was measured is untouched, and what names a commit stays."""
    telemetry = record.telemetry
    if telemetry is not None and telemetry.message is not None:
        telemetry = telemetry.model_copy(update={"message": _message(telemetry.message, redaction)})
    return record.model_copy(
        update={
            "environment": redact_environment(record.environment, redaction),
            "measurements": tuple(_told(part, redaction) for part in record.measurements),
            "accuracies": tuple(_told(part, redaction) for part in record.accuracies),
            "static_facts": tuple(_told(part, redaction) for part in record.static_facts),
            "counters": tuple(_counted(part, redaction) for part in record.counters),
            "profiles": tuple(redact_profile(part, redaction) for part in record.profiles),
            "telemetry": telemetry,
        }
    )


def redact_environment(environment: Environment, redaction: Redaction) -> Environment:
    """The same environment, without settings that name a machine or open one."""
    knobs = {name: _knob(name, value, redaction) for name, value in environment.compile_knobs.items()}
    return environment.model_copy(update={"compile_knobs": knobs})


def redact_profile(profile: CaseProfile, redaction: Redaction) -> CaseProfile:
    """The same profile; a program chooses the names of its kernels and operators."""
    rows = tuple(row.model_copy(update={"name": redaction.text(row.name)[:MOST_NAME]}) for row in profile.rows)
    return profile.model_copy(update={"rows": rows})


def without_author(record: RunRecord, redaction: Redaction) -> RunRecord:
    """The same record, and it does not say who wrote the commit, unless names of people are kept."""
    if redaction.keeps(Kind.USER):
        return record
    return record.model_copy(update={"commit": record.commit.model_copy(update={"author": ""})})


def _told(part: _Told, redaction: Redaction) -> _Told:
    if part.message is None:
        return part
    return part.model_copy(update={"message": _message(part.message, redaction)})


def _counted(part: Counters, redaction: Redaction) -> Counters:
    findings = tuple(
        finding.model_copy(update={"message": _message(finding.message, redaction)}) for finding in part.findings
    )
    return part.model_copy(update={"findings": findings})


def _message(message: str, redaction: Redaction) -> str:
    return redaction.text(message)[:_MAX_MESSAGE]


def _knob(name: str, value: str, redaction: Redaction) -> str:
    if name.endswith(_NOT_FOR_OTHERS) and not redaction.keeps(Kind.ENVIRONMENT):
        return "<removed>"
    return redaction.text(value)
