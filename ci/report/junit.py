"""A judgement as JUnit XML, which most systems of continuous integration show. Pure.

One test case for each case and implementation, for each compiled function that differs, and for what a launch takes
more or less of; a regression is a failure, what could not be told is skipped, with the reason. JUnit has no schema of
its own: the elements are those that Jenkins, GitLab and GitHub's reporters agree on.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.ab.comparable import SideResult
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement
from roofwatch.ci.report.sections import REASON_WORDS
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import Verdict

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(judgement: PullRequestJudgement) -> str:
    """Write the document; its times are those of the head, in seconds."""
    root = ElementTree.Element("testsuites", name="roofwatch")
    cases = [_timed(case) for case in judgement.cases]
    compiled = [_compiled(item) for item in judgement.static]
    launched = [_launched(move) for move in judgement.secondary_changes]
    for name, elements in (("measured", cases), ("compiled", compiled), ("launched", launched)):
        if elements:
            _add_suite(root, f"{_xml(judgement.project)} {name}", elements)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _add_suite(root: ElementTree.Element, name: str, elements: list[ElementTree.Element]) -> None:
    failures, skipped = (sum(element.find(tag) is not None for element in elements) for tag in ("failure", "skipped"))
    suite = ElementTree.SubElement(
        root, "testsuite", name=name, tests=str(len(elements)), failures=str(failures), errors="0", skipped=str(skipped)
    )
    suite.extend(elements)


def _timed(case: CaseJudgement) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=_xml(case.case_id), name=_xml(case.implementation))
    if case.head is not None and case.head.median_ns is not None:
        element.set("time", f"{case.head.median_ns / 1e9:.9f}")
    details = [str(case.detail)] if case.detail is not None else []
    details += [f"base: {_side(case.base)}", f"head: {_side(case.head)}"]
    if case.comparison is not None:
        details.append(f"change: {case.comparison.relative_change:+.1%}")
    _judge(element, case.verdict, REASON_WORDS.get(case.reason, str(case.reason)), details)
    return element


def _compiled(item: StaticJudgement) -> ElementTree.Element:
    name = f"{item.implementation} {item.function} for {item.target}"
    element = ElementTree.Element("testcase", classname=_xml(item.case_id), name=_xml(name))
    reason = REASON_WORDS.get(item.reason, str(item.reason).replace("_", " "))
    _judge(element, item.verdict, reason, [] if item.detail is None else [str(item.detail)])
    return element


def _launched(move: Change) -> ElementTree.Element:
    name = f"{move.implementation} {metric(move.metric).title}"
    element = ElementTree.Element("testcase", classname=_xml(move.case_id), name=_xml(name))
    reason = REASON_WORDS.get(move.reason, str(move.reason).replace("_", " "))
    _judge(element, move.verdict, reason, [move.in_words])
    return element


def _judge(element: ElementTree.Element, verdict: Verdict, reason: str, details: list[str]) -> None:
    tag = {Verdict.REGRESSED: "failure", Verdict.INCONCLUSIVE: "skipped"}.get(verdict)
    if tag is not None:
        told = ElementTree.SubElement(element, tag, message=_xml(f"{verdict}: {reason}"))
        told.text = _xml("\n".join(details))


def _side(side: SideResult | None) -> str:
    if side is None:
        return "not measured"
    if side.failure is not None:
        return f"{side.failure}: {side.message or ''}"
    return "not timed" if side.median_ns is None else metric("median_ns").format(side.median_ns)


def _xml(text: str) -> str:
    """Without what XML cannot hold, escaped or not."""
    return _NOT_XML.sub("�", text)
