"""A judgement as SARIF 2.1.0, the format of findings that code scanning reads. Pure.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0". A result is a regression; what could
not be told is no finding. A record does not know where in a file a kernel stands, so a result has a logical location
alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from ci.pull_request import CaseJudgement, PullRequestJudgement
from ci.reason import Reason
from ci.sections import REASON_WORDS
from ci.static_compare import StaticJudgement
from db.values import Verdict

SCHEMA_URL = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_FINGERPRINT = "roofwatch/v1"


def to_sarif(judgement: PullRequestJudgement, *, version: str) -> str:
    """Write the document.

    Args:
        judgement: What was found.
        version: Of roofwatch.
    """
    results = [*_of_cases(judgement), *_of_compiled(judgement)]
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


def _of_cases(judgement: PullRequestJudgement) -> Iterator[dict[str, Any]]:
    for case in judgement.cases:
        if case.verdict is Verdict.REGRESSED:
            name = f"{case.case_id} {case.implementation}"
            yield _result(judgement.project, case.reason, name, f"{name}: {_what(case)}")


def _of_compiled(judgement: PullRequestJudgement) -> Iterator[dict[str, Any]]:
    for item in judgement.static:
        if item.verdict is Verdict.REGRESSED:
            name = f"{item.case_id} {item.implementation} {item.function} {item.target}"
            yield _result(judgement.project, item.reason, name, f"{name}: {_what_compiled(item)}")


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


def _result(project: str, reason: Reason, name: str, text: str) -> dict[str, Any]:
    # the same finding in the next run: a name, and never a number
    fingerprint = hashlib.sha256("\n".join((project, str(reason), name)).encode()).hexdigest()
    return {
        "ruleId": str(reason),
        "level": "error",
        "message": {"text": _visible(text)},
        "locations": [{"logicalLocations": [{"fullyQualifiedName": _visible(name), "kind": "function"}]}],
        "partialFingerprints": {_FINGERPRINT: fingerprint},
    }


def _visible(text: str) -> str:
    """On one line, and nothing that does not show."""
    return "".join(character if character.isprintable() else "�" for character in " ".join(text.split()))
