"""A judgement in the formats of CI systems: JUnit XML and SARIF. Pure."""

import hashlib
import json
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.claims.reason_words import reason_words
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import on_one_line
from roofwatch.ci.report.change_words import (
    claim_text,
    counted_changes,
    line_of,
    name_of,
    short_name,
    sides_of,
    text_of,
    worst_first,
)
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.model.files import JsonObject
from roofwatch.model.source_line import SourceLine
from roofwatch.model.verdict import Reason, Verdict

SARIF_SCHEMA_URL = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# XML 1.0 has no way to write these characters
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_JUNIT_TAGS = {Verdict.REGRESSED: "failure", Verdict.INCONCLUSIVE: "skipped"}


def to_junit(judgement: PullRequestJudgement) -> str:
    """Write JUnit XML with the head's times in seconds: regressions fail, inconclusive results are
    skipped.
    """
    root = ElementTree.Element("testsuites", name="roofwatch")
    suites: dict[str, Sequence[Change[Any]]] = {
        "measured": worst_first(judgement.cases),
        "compiled": judgement.static,
        "launched": judgement.secondary_changes,
    }
    for name, changes in suites.items():
        # an empty suite says nothing
        if changes:
            title = valid_xml(f"{judgement.project} {name}")
            root.append(_junit_suite(title, [_junit_case(change) for change in changes]))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _junit_suite(title: str, cases: Sequence[ElementTree.Element]) -> ElementTree.Element:
    counts: dict[str, str] = {}
    for tag in ("failure", "skipped"):
        tagged = [case for case in cases if case.find(tag) is not None]
        counts[tag] = str(len(tagged))
    suite = ElementTree.Element("testsuite", name=title)
    suite.attrib |= {
        "tests": str(len(cases)),
        "failures": counts["failure"],
        "errors": "0",
    }
    suite.attrib |= {"skipped": counts["skipped"]}
    suite.extend(cases)
    return suite


def to_sarif(judgement: PullRequestJudgement, *, version: str) -> str:
    """Write SARIF 2.1.0 for code scanning, with a result for each regression.

    Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
    """
    regressed = [
        change for change in counted_changes(judgement) if change.verdict is Verdict.REGRESSED
    ]
    rules = sorted({change.reason for change in regressed})
    results = [_sarif_result(judgement, change, rules) for change in regressed]
    driver = {
        "name": "roofwatch",
        "version": version,
        "rules": [
            {
                "id": rule,
                "shortDescription": {"text": reason_words(rule)},
                "helpUri": rule.url,
            }
            for rule in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"roofwatch/{judgement.project}/"},
        "results": results,
        "invocations": [_sarif_invocation(judgement)],
        "columnKind": "unicodeCodePoints",
    }
    document = {
        "$schema": SARIF_SCHEMA_URL,
        "version": "2.1.0",
        "runs": [run],
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return f"{text}\n"


def _junit_case(change: Change[Any]) -> ElementTree.Element:
    """Write one test case: regressions fail, what is undecided is skipped."""
    element = ElementTree.Element(
        "testcase",
        classname=valid_xml(change.case_id),
        name=valid_xml(short_name(change)),
    )
    if isinstance(change.evidence, CaseEvidence) and change.head is not None:
        element.set("time", f"{change.head / 1e9:.9f}")
    claim = claim_text(change)
    # JUnit knows failed and skipped; all else has passed
    if change.verdict in _JUNIT_TAGS:
        message = f"{change.verdict}: {claim or reason_words(change.reason)}"
        result = ElementTree.SubElement(
            element,
            _JUNIT_TAGS[change.verdict],
            message=valid_xml(message),
        )
        lines = (text_of(change), *sides_of(change))
        result.text = valid_xml("\n".join(lines))
    elif claim:
        ElementTree.SubElement(element, "system-out").text = valid_xml(claim)
    return element


def valid_xml(text: str) -> str:
    """Replace characters that are not allowed in XML."""
    return _NOT_XML.sub("�", text)


def _sarif_invocation(judgement: PullRequestJudgement) -> JsonObject:
    """Name what is undecided: code scanning has results for regressions only."""
    notifications: list[JsonObject] = []
    for case in judgement.cases:
        if case.verdict is Verdict.INCONCLUSIVE:
            text = f"{case.case_id} {case.implementation}: {case.evidence.claimed.text}"
            notification: JsonObject = {
                "level": "warning",
                "descriptor": {"id": str(case.reason)},
                "message": {"text": on_one_line(text)},
            }
            notifications.append(notification)
    return {"executionSuccessful": True, "toolExecutionNotifications": notifications}


def _sarif_result(
    judgement: PullRequestJudgement,
    change: Change[Any],
    rules: list[Reason],
) -> JsonObject:
    # the fingerprint has no numbers, so the same change in the next run has the same
    identity = (judgement.project, str(change.reason), name_of(change))
    fingerprint = hashlib.sha256("\n".join(identity).encode()).hexdigest()
    logical = {"fullyQualifiedName": on_one_line(name_of(change)), "kind": "function"}
    location: JsonObject = {"logicalLocations": [logical]}
    line = line_of(judgement.source_lines, change)
    if line is not None:
        location["physicalLocation"] = _physical_location(line)
    return {
        "ruleId": str(change.reason),
        "ruleIndex": rules.index(change.reason),
        "level": "error",
        "message": {"text": on_one_line(f"{name_of(change)}: {text_of(change)}")},
        "locations": [location],
        "partialFingerprints": {"roofwatch/v1": fingerprint},
    }


def _physical_location(line: SourceLine) -> JsonObject:
    file = {"uri": urllib.parse.quote(line.file), "uriBaseId": "%SRCROOT%"}
    return {"artifactLocation": file, "region": {"startLine": line.line}}
