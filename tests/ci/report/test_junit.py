from xml.etree import ElementTree

import pytest

from roofwatch.ci.report.interchange import to_junit
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.db.values import Verdict
from tests.ci.situations import HOSTILE, SITUATIONS


def judged(situation: str) -> PullRequestJudgement:
    return judge_pull_request(*SITUATIONS[situation]())


@pytest.mark.parametrize("situation", sorted(SITUATIONS.keys() - {"huge"}))
def test_failures_are_the_regressions_and_what_could_not_be_told_is_skipped(situation: str) -> None:
    judgement = judged(situation)

    root = ElementTree.fromstring(to_junit(judgement).encode())  # noqa: S314  our own

    verdicts = [*(case.verdict for case in judgement.cases), *(item.verdict for item in judgement.static)]
    assert len(root.findall(".//testcase")) == len(verdicts)
    assert len(root.findall(".//failure")) == verdicts.count(Verdict.REGRESSED)
    assert len(root.findall(".//skipped")) == verdicts.count(Verdict.INCONCLUSIVE)
    for suite in root:
        for count, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("skipped", "testcase/skipped")):
            assert int(suite.get(count) or -1) == len(suite.findall(tag))


def test_a_slower_case_says_how_much() -> None:
    root = ElementTree.fromstring(to_junit(judged("regression")).encode())  # noqa: S314  our own

    case = root.find(".//testcase")
    assert case is not None
    assert float(case.get("time") or 0) == pytest.approx(1.4e-3, rel=0.01)
    failure = case.find("failure")
    assert failure is not None
    assert "time +40." in str(failure.text)
    assert str(failure.get("message")).startswith("regressed: ")


def test_what_xml_cannot_hold_is_replaced_and_the_rest_escaped() -> None:
    base, head = SITUATIONS["crash"]()
    broken = head.measurements[0].model_copy(update={"message": f"\x00\x1b[31m]]> \ufffe {HOSTILE}"})
    head = head.model_copy(update={"measurements": (broken, *head.measurements[1:])})

    text = to_junit(judge_pull_request(base, head))

    root = ElementTree.fromstring(text.encode())  # noqa: S314  our own
    assert "<script>" not in text
    told = [str(element.text) for element in root.iter("failure")]
    assert any("��[31m]]> �" in each and "<script>alert(1)</script>" in each for each in told)
