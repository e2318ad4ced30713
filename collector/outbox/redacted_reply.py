"""What a worker replies, without what must not leave the machine. It holds whatever a kernel says as it fails, and all
that is kept, printed or sent comes from it.
"""

from __future__ import annotations

from typing import TypeVar

from roofwatch.collector.accuracy.check_report import CheckReport
from roofwatch.collector.outbox.redacted_record import redact_environment, redact_profile
from roofwatch.collector.outbox.redaction import Redaction
from roofwatch.collector.record.results import Accuracy, StaticFacts
from roofwatch.collector.workers.protocol import Failure, Reply

_Told = TypeVar("_Told", Failure, Accuracy, StaticFacts, CheckReport)


def redact_reply(reply: Reply, redaction: Redaction) -> Reply:
    """The same reply; of one that says nothing in words, itself."""
    changed: dict[str, object] = {}
    if reply.environment is not None:
        changed["environment"] = redact_environment(reply.environment, redaction)
    if reply.failure is not None:
        changed["failure"] = _told(reply.failure, redaction)
    if reply.accuracy is not None:
        changed["accuracy"] = _told(reply.accuracy, redaction)
    if reply.static_facts is not None:
        changed["static_facts"] = tuple(_told(facts, redaction) for facts in reply.static_facts)
    if reply.profile is not None:
        changed["profile"] = redact_profile(reply.profile, redaction)
    if reply.fully_checked is not None:
        report = _told(reply.fully_checked.report, redaction)
        if report.baseline_missing is not None:
            report = report.model_copy(update={"baseline_missing": redaction.text(report.baseline_missing)})
        changed["fully_checked"] = reply.fully_checked.model_copy(update={"report": report})
    return reply.model_copy(update=changed) if changed else reply


def _told(part: _Told, redaction: Redaction) -> _Told:
    return part if part.message is None else part.model_copy(update={"message": redaction.text(part.message)})
