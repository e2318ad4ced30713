"""All results of a judgement as one list, each with its place in the source; as JUnit XML and
SARIF. Pure.
"""

import hashlib
import json
import re
import urllib.parse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.pairing import SideResult
from roofwatch.ci.messages import on_one_line
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.model.metrics import metric
from roofwatch.model.record import SourceLine
from roofwatch.model.verdict import Reason, Verdict

VERDICT_ORDER = (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.UNCHANGED)
SARIF_SCHEMA_URL = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_JUNIT_TAGS = {Verdict.REGRESSED: "failure", Verdict.INCONCLUSIVE: "skipped"}


@dataclass(frozen=True)
class Finding:
    """A case and implementation, a compiled function that differs, or a metric of a launch that
    changed.
    """

    suite: str
    """`measured`, `compiled`, `launched` or `checked`."""
    case_id: str
    implementation: str
    verdict: Verdict
    reason: Reason
    text: str
    """Untrusted: it may have words of a record."""
    line: SourceLine | None
    """In the head's source, if known."""
    part: str = ""
    """Function or metric of the implementation."""
    target: str = ""
    """Of a compiled function."""
    details: tuple[str, ...] = ()
    head_ns: float | None = None
    """Median time of a case at the head."""
    claim: str = ""
    """What may be claimed about a case, in words."""
    is_change: bool = True
    """Whether it is worth a row of a table."""

    @property
    def name(self) -> str:
        return f"{self.case_id} {self.short_name}"

    @property
    def short_name(self) -> str:
        """Name without the case."""
        return " ".join(
            filter(None, (self.implementation, self.part, self.target and f"for {self.target}"))
        )


def list_findings(judgement: PullRequestJudgement) -> list[Finding]:
    """List all cases, the worst first, then compiled functions and launches."""
    lines = judgement.source_lines
    found = [_case_finding(case, lines) for case in worst_first(judgement.cases)]
    found += static_findings(judgement.static, lines)
    return found + [
        _finding_of(change, "launched", lines) for change in judgement.secondary_changes
    ]


def _case_finding(case: Change[CaseEvidence], lines: Sequence[SourceLine]) -> Finding:
    return Finding(
        suite="measured",
        case_id=case.case_id,
        implementation=case.implementation,
        verdict=case.verdict,
        reason=case.reason,
        text=_case_text(case),
        line=find_line(lines, case.case_id, case.implementation),
        details=(
            f"base: {_side_text(case.evidence.base, case.base)}",
            f"head: {_side_text(case.evidence.head, case.head)}",
        ),
        head_ns=case.head,
        claim=case.evidence.claimed.text,
        is_change=case.verdict is not Verdict.UNCHANGED,
    )


def static_findings(
    static: Iterable[StaticJudgement], lines: Sequence[SourceLine] = ()
) -> list[Finding]:
    return [
        Finding(
            "compiled",
            item.case_id,
            item.implementation,
            item.verdict,
            item.reason,
            reason_words(item.reason) if item.detail is None else str(item.detail),
            line=find_line(lines, item.case_id, item.implementation, item.function),
            part=item.function,
            target=item.target,
            is_change=item.is_listed,
        )
        for item in static
    ]


def accuracy_findings(judgement: PullRequestJudgement) -> list[Finding]:
    """List changes of the error of correct results, which decide nothing."""
    return [
        _finding_of(change, "checked", judgement.source_lines)
        for change in judgement.accuracy_changes
    ]


def _finding_of(change: Change[None], suite: str, lines: Sequence[SourceLine]) -> Finding:
    return Finding(
        suite=suite,
        case_id=change.case_id,
        implementation=change.implementation,
        verdict=change.verdict,
        reason=change.reason,
        text=change.in_words,
        line=find_line(lines, change.case_id, change.implementation),
        part=change.subject.part or metric(change.metric).title,
    )


def worst_first(cases: Iterable[Change[CaseEvidence]]) -> list[Change[CaseEvidence]]:
    """Sort cases: regressions first, wrong results before slowdowns, large changes before small
    ones.
    """

    def weight(case: Change[CaseEvidence]) -> tuple[int, bool, float, str, str]:
        is_wrong = case.reason is Reason.WRONG_RESULT
        return (
            VERDICT_ORDER.index(case.verdict),
            not is_wrong,
            -abs(case.log_ratio),
            case.case_id,
            case.implementation,
        )

    return sorted(cases, key=weight)


def find_line(
    lines: Sequence[SourceLine], case_id: str, implementation: str, function: str | None = None
) -> SourceLine | None:
    """Find the line of a compiled function; without one, that of the only compiled function or of
    the launcher.
    """
    own = [
        one
        for one in lines
        if (one.kernel, one.implementation) == (case_id.split("/", 1)[0], implementation)
    ]
    jitted = [line for line in own if line.is_jitted]
    named = [line for line in jitted if line.function == function]
    return next(iter(named or (jitted if len(jitted) == 1 else own)), None)


def _case_text(case: Change[CaseEvidence]) -> str:
    comparison = case.evidence.comparison
    parts = [case.evidence.claimed.text]
    if case.detail is not None:
        parts.append(str(case.detail))
    if comparison is not None:
        low, high = comparison.relative_interval
        interval = f"95 % interval {low:+.1%} to {high:+.1%}"
        parts.append(f"time {case.relative_change:+.1%} ({interval})")
        if comparison.change_of_medians is not None:
            parts.append(f"medians {comparison.change_of_medians:+.1%}")
        if comparison.more_blocks is not None:
            parts.append(f"needs about {comparison.more_blocks} more blocks")
    if case.cause is not None:
        parts.append(f"cause: {case.cause}, the sources are equal")
    is_explained = comparison is not None or case.detail is not None
    head = case.evidence.head
    if case.verdict is Verdict.REGRESSED and not is_explained and head is not None and head.message:
        parts.append(head.message)
    return ": ".join(parts)


def _side_text(side: SideResult | None, time_ns: float | None) -> str:
    if side is None:
        return "not measured"
    if side.failure is not None:
        return f"{side.failure}: {side.message or ''}"
    return "not timed" if time_ns is None else metric("median_ns").format(time_ns)


# --- formats of CI systems


def to_junit(judgement: PullRequestJudgement) -> str:
    """Write JUnit XML with the head's times in seconds: regressions fail, inconclusive results are
    skipped.
    """
    root = ElementTree.Element("testsuites", name="roofwatch")
    for name, findings in groupby(list_findings(judgement), key=lambda finding: finding.suite):
        cases = [_junit_case(finding) for finding in findings]
        counts = {
            tag: str(sum(case.find(tag) is not None for case in cases))
            for tag in ("failure", "skipped")
        }
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"{valid_xml(judgement.project)} {name}"
        )
        suite.attrib |= {"tests": str(len(cases)), "failures": counts["failure"], "errors": "0"}
        suite.attrib |= {"skipped": counts["skipped"]}
        suite.extend(cases)
    ElementTree.indent(root)
    return (
        f'<?xml version="1.0" '
        f'encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'
    )


def to_sarif(judgement: PullRequestJudgement, *, version: str) -> str:
    """Write SARIF 2.1.0 for code scanning, with a result for each regression.

    Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
    """
    regressed = [
        finding for finding in list_findings(judgement) if finding.verdict is Verdict.REGRESSED
    ]
    rules = sorted({finding.reason for finding in regressed})
    driver = {
        "name": "roofwatch",
        "version": version,
        "rules": [
            {"id": rule, "shortDescription": {"text": reason_words(rule)}, "helpUri": rule.url}
            for rule in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"roofwatch/{judgement.project}/"},
        "results": [_sarif_result(judgement.project, finding, rules) for finding in regressed],
        "invocations": [_sarif_invocation(judgement)],
        "columnKind": "unicodeCodePoints",
    }
    document = {"$schema": SARIF_SCHEMA_URL, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _junit_case(finding: Finding) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase", classname=valid_xml(finding.case_id), name=valid_xml(finding.short_name)
    )
    if finding.head_ns is not None:
        element.set("time", f"{finding.head_ns / 1e9:.9f}")
    if finding.verdict in _JUNIT_TAGS:
        message = f"{finding.verdict}: {finding.claim or reason_words(finding.reason)}"
        result = ElementTree.SubElement(
            element, _JUNIT_TAGS[finding.verdict], message=valid_xml(message)
        )
        result.text = valid_xml("\n".join((finding.text, *finding.details)))
    elif finding.claim:
        ElementTree.SubElement(element, "system-out").text = valid_xml(finding.claim)
    return element


def valid_xml(text: str) -> str:
    """Replace characters that are not allowed in XML."""
    return _NOT_XML.sub("�", text)


def _sarif_invocation(judgement: PullRequestJudgement) -> dict[str, Any]:
    """Name what is undecided: code scanning has results for regressions only."""
    notifications: list[dict[str, Any]] = []
    for case in judgement.cases:
        if case.verdict is Verdict.INCONCLUSIVE:
            text = f"{case.case_id} {case.implementation}: {case.evidence.claimed.text}"
            notifications.append(
                {
                    "level": "warning",
                    "descriptor": {"id": str(case.reason)},
                    "message": {"text": on_one_line(text)},
                }
            )
    return {"executionSuccessful": True, "toolExecutionNotifications": notifications}


def _sarif_result(project: str, finding: Finding, rules: list[Reason]) -> dict[str, Any]:
    # the fingerprint has no numbers, so the same finding in the next run has the same
    fingerprint = hashlib.sha256(
        "\n".join((project, str(finding.reason), finding.name)).encode()
    ).hexdigest()
    name = on_one_line(finding.name)
    location: dict[str, Any] = {
        "logicalLocations": [{"fullyQualifiedName": name, "kind": "function"}]
    }
    if finding.line is not None:
        location["physicalLocation"] = {
            "artifactLocation": {
                "uri": urllib.parse.quote(finding.line.file),
                "uriBaseId": "%SRCROOT%",
            },
            "region": {"startLine": finding.line.line},
        }
    return {
        "ruleId": str(finding.reason),
        "ruleIndex": rules.index(finding.reason),
        "level": "error",
        "message": {"text": on_one_line(f"{finding.name}: {finding.text}")},
        "locations": [location],
        "partialFingerprints": {"roofwatch/v1": fingerprint},
    }
