"""A judgement as SARIF 2.1.0, the format of findings that code scanning reads. Pure.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0". A result is a regression; what could
not be told is no finding. It stands beside the kernel's source where the record knows it, and has its name in any case.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Iterator
from typing import Any

from roofwatch.ci.github.annotations import SourcePlaces
from roofwatch.ci.message import on_one_line
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.sections import REASON_WORDS
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.collector.record.record import SourceLine
from roofwatch.db.values import Verdict

SCHEMA_URL = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_FINGERPRINT = "roofwatch/v1"
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")


def to_sarif(judgement: PullRequestJudgement, *, version: str) -> str:
    """Write the document.

    Args:
        judgement: What was found.
        version: Of roofwatch.
    """
    places = SourcePlaces(judgement.source_lines)
    results = [*_of_cases(judgement, places), *_of_compiled(judgement, places), *_of_launches(judgement, places)]
    rules = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "roofwatch",
        "version": version,
        "rules": [{"id": rule, "shortDescription": {"text": _words(Reason(rule))}} for rule in rules],
    }
    for result in results:
        result["ruleIndex"] = rules.index(result["ruleId"])
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"roofwatch/{judgement.project}/"},
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    document = {"$schema": SCHEMA_URL, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _of_cases(judgement: PullRequestJudgement, places: SourcePlaces) -> Iterator[dict[str, Any]]:
    for case in judgement.cases:
        if case.verdict is Verdict.REGRESSED:
            name = f"{case.case_id} {case.implementation}"
            line = places.of(case.case_id, case.implementation)
            yield _result(judgement.project, case.reason, name, f"{name}: {_what(case)}", line)


def _of_compiled(judgement: PullRequestJudgement, places: SourcePlaces) -> Iterator[dict[str, Any]]:
    for item in judgement.static:
        if item.verdict is Verdict.REGRESSED:
            name = f"{item.case_id} {item.implementation} {item.function} {item.target}"
            line = places.of(item.case_id, item.implementation, item.function)
            yield _result(judgement.project, item.reason, name, f"{name}: {_what_compiled(item)}", line)


def _of_launches(judgement: PullRequestJudgement, places: SourcePlaces) -> Iterator[dict[str, Any]]:
    for move in judgement.secondary_changes:
        if move.verdict is Verdict.REGRESSED:
            name = f"{move.case_id} {move.implementation}"
            line = places.of(move.case_id, move.implementation)
            yield _result(judgement.project, move.reason, name, f"{name}: {move.in_words}", line)


def _what(case: CaseJudgement) -> str:
    if case.comparison is not None:
        low, high = case.comparison.relative_interval
        return f"{case.comparison.relative_change:+.1%} time (95 % interval {low:+.1%} to {high:+.1%})"
    message = case.head.message if case.head is not None else None
    return _words(case.reason) + (f": {message}" if message else "")


def _what_compiled(item: StaticJudgement) -> str:
    return _words(item.reason) + (f": {item.detail}" if item.detail is not None else "")


def _words(reason: Reason) -> str:
    return REASON_WORDS.get(reason, str(reason).replace("_", " "))


def _result(project: str, reason: Reason, name: str, text: str, line: SourceLine | None) -> dict[str, Any]:
    # the same finding in the next run: a name, and never a number
    fingerprint = hashlib.sha256("\n".join((project, str(reason), name)).encode()).hexdigest()
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": on_one_line(name), "kind": "function"}]}
    if line is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": _uri_of(line.file), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": line.line},
        }
    return {
        "ruleId": str(reason),
        "level": "error",
        "message": {"text": on_one_line(text)},
        "locations": [location],
        "partialFingerprints": {_FINGERPRINT: fingerprint},
    }


def _uri_of(file: str) -> str:
    """A relative reference: all but what RFC 3986 leaves as it is, and the slash, is encoded."""
    plain = _UNRESERVED | {"/"}
    return "".join(each if each in plain else "".join(f"%{byte:02X}" for byte in each.encode()) for each in file)
