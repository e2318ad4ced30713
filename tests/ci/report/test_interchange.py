"""JUnit XML and SARIF."""

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from roofwatch.ci.report.interchange import to_junit, to_sarif
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.model.verdict import Verdict
from tests.builders import make_source_line
from tests.ci.situations import HOSTILE, SITUATIONS

SMALL = sorted(SITUATIONS.keys() - {"huge"})


def judged(situation: str) -> PullRequestJudgement:
    return judge_pull_request(*SITUATIONS[situation]())


def junit_of(judgement: PullRequestJudgement) -> ElementTree.Element:
    return ElementTree.fromstring(to_junit(judgement).encode())  # noqa: S314  our own


def sarif_run(judgement: PullRequestJudgement) -> dict[str, Any]:
    document = json.loads(to_sarif(judgement, version="1.2.3"))
    assert (set(document), document["version"]) == ({"$schema", "version", "runs"}, "2.1.0")
    (run,) = document["runs"]
    found: dict[str, Any] = run
    return found


def verdicts_of(judgement: PullRequestJudgement) -> list[Verdict]:
    return [
        one.verdict
        for part in (judgement.cases, judgement.static, judgement.secondary_changes)
        for one in part
    ]


@pytest.mark.parametrize("situation", SMALL)
def test_junit_has_one_result_for_each_verdict(situation: str) -> None:
    judgement = judged(situation)

    root = junit_of(judgement)

    verdicts = verdicts_of(judgement)
    assert len(root.findall(".//testcase")) == len(verdicts)
    assert len(root.findall(".//failure")) == verdicts.count(Verdict.REGRESSED)
    assert len(root.findall(".//skipped")) == verdicts.count(Verdict.INCONCLUSIVE)
    for suite in root:
        for count, tag in (
            ("tests", "testcase"),
            ("failures", "testcase/failure"),
            ("skipped", "testcase/skipped"),
        ):
            assert int(suite.get(count) or -1) == len(suite.findall(tag))


def test_a_slower_case_has_its_change() -> None:
    case = junit_of(judged("regression")).find(".//testcase")
    texts = [result["message"]["text"] for result in sarif_run(judged("regression"))["results"]]

    assert case is not None
    assert float(case.get("time") or 0) == pytest.approx(1.4e-3, rel=0.01)
    failure = case.find("failure")
    assert failure is not None
    assert "time +40." in str(failure.text)
    assert str(failure.get("message")).startswith("regressed: ")
    assert any(re.search(r": time \+40\.\d% \(95 % interval \+", text) for text in texts)


def test_a_hostile_message_is_valid_xml_that_shows_its_text() -> None:
    base, head = SITUATIONS["incorrect"]()
    broken = head.measurements[0].model_copy(
        update={"message": f"\x00\x1b[31m]]> \ufffe {HOSTILE}"}
    )
    judgement = judge_pull_request(
        base, head.model_copy(update={"measurements": (broken, *head.measurements[1:])})
    )

    texts = [str(element.text) for element in junit_of(judgement).iter("failure")]

    assert "<script>" not in to_junit(judgement)
    assert any("��[31m]]> �" in each and "<script>alert(1)</script>" in each for each in texts)


@pytest.mark.parametrize("situation", SMALL)
def test_each_regression_is_a_sarif_result_under_a_listed_rule(situation: str) -> None:
    judgement = judged(situation)

    run = sarif_run(judgement)

    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("roofwatch", "1.2.3")
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    assert len(run["results"]) == verdicts_of(judgement).count(Verdict.REGRESSED)
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] == "error"
        assert result["message"]["text"].isprintable()
        assert re.fullmatch(r"[0-9a-f]{64}", result["partialFingerprints"]["roofwatch/v1"])
        (location,) = result["locations"]
        assert location["logicalLocations"][0]["fullyQualifiedName"].isprintable()


def test_a_result_has_its_source_line_if_known() -> None:
    base, head = SITUATIONS["regression"]()
    line = make_source_line(file="my kernels/rms#norm é.py", line=12)
    judgement = judge_pull_request(base, head.model_copy(update={"source_lines": (line,)}))

    first, second = sarif_run(judgement)["results"]

    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {
            "uri": "my%20kernels/rms%23norm%20%C3%A9.py",
            "uriBaseId": "%SRCROOT%",
        },
        "region": {"startLine": 12},
    }
    assert "physicalLocation" not in second["locations"][0]
