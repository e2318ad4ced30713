"""A judgement in formats of CI systems: JUnit XML and SARIF. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from roofwatch.ci.messages import on_one_line
from roofwatch.ci.report.findings import Finding, list_findings, reason_words
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.verdicts import Reason
from roofwatch.db.values import Verdict

SARIF_SCHEMA_URL = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_JUNIT_TAGS = {Verdict.REGRESSED: "failure", Verdict.INCONCLUSIVE: "skipped"}


def to_junit(judgement: PullRequestJudgement) -> str:
    """Write JUnit XML with the head's times in seconds: regressions fail, inconclusive results are skipped."""
    root = ElementTree.Element("testsuites", name="roofwatch")
    for name, findings in groupby(list_findings(judgement), key=lambda finding: finding.suite):
        cases = [_junit_case(finding) for finding in findings]
        counts = {tag: str(sum(case.find(tag) is not None for case in cases)) for tag in ("failure", "skipped")}
        suite = ElementTree.SubElement(root, "testsuite", name=f"{_xml(judgement.project)} {name}")
        suite.attrib |= {"tests": str(len(cases)), "failures": counts["failure"], "errors": "0"}
        suite.attrib |= {"skipped": counts["skipped"]}
        suite.extend(cases)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def to_sarif(judgement: PullRequestJudgement, *, version: str) -> str:
    """Write SARIF 2.1.0 for code scanning, with a result for each regression.

    Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".

    Args:
        judgement: The results.
        version: Of roofwatch.
    """
    regressed = [finding for finding in list_findings(judgement) if finding.verdict is Verdict.REGRESSED]
    rules = sorted({finding.reason for finding in regressed})
    driver = {
        "name": "roofwatch",
        "version": version,
        "rules": [
            {"id": rule, "shortDescription": {"text": reason_words(rule)}, "helpUri": rule.url} for rule in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"roofwatch/{judgement.project}/"},
        "results": [_sarif_result(judgement.project, finding, rules) for finding in regressed],
        "columnKind": "unicodeCodePoints",
    }
    document = {"$schema": SARIF_SCHEMA_URL, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _junit_case(finding: Finding) -> ElementTree.Element:
    name = f"{finding.implementation} {finding.part}".rstrip()
    element = ElementTree.Element("testcase", classname=_xml(finding.case_id), name=_xml(name))
    if finding.head_ns is not None:
        element.set("time", f"{finding.head_ns / 1e9:.9f}")
    if finding.verdict in _JUNIT_TAGS:
        message = f"{finding.verdict}: {reason_words(finding.reason)}"
        result = ElementTree.SubElement(element, _JUNIT_TAGS[finding.verdict], message=_xml(message))
        result.text = _xml("\n".join((finding.text, *finding.details)))
    return element


def _xml(text: str) -> str:
    """Replace characters that are not allowed in XML."""
    return _NOT_XML.sub("�", text)


def _sarif_result(project: str, finding: Finding, rules: list[Reason]) -> dict[str, Any]:
    # the fingerprint has no numbers, so the same finding in the next run has the same
    fingerprint = hashlib.sha256("\n".join((project, str(finding.reason), finding.name)).encode()).hexdigest()
    name = on_one_line(finding.name)
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": name, "kind": "function"}]}
    if finding.line is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": urllib.parse.quote(finding.line.file), "uriBaseId": "%SRCROOT%"},
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
