"""SARIF, against the rules of the standard that matter to whoever reads it: its schema is in no package."""

import json
import re
from typing import Any

import pytest

from roofwatch.ci.report.interchange import to_sarif
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.db.values import Verdict
from tests.builders import make_source_line
from tests.ci.situations import SITUATIONS

LEVELS = {"none", "note", "warning", "error"}


def run_of(situation: str) -> dict[str, Any]:
    document = json.loads(to_sarif(judge_pull_request(*SITUATIONS[situation]()), version="1.2.3"))
    assert set(document) == {"$schema", "version", "runs"}
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    found: dict[str, Any] = run
    return found


@pytest.mark.parametrize("situation", sorted(SITUATIONS.keys() - {"huge"}))
def test_each_regression_is_a_result_under_a_rule_that_is_listed(situation: str) -> None:
    judgement = judge_pull_request(*SITUATIONS[situation]())
    run = run_of(situation)

    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("roofwatch", "1.2.3")
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    verdicts = [*(case.verdict for case in judgement.cases), *(item.verdict for item in judgement.static)]
    assert len(run["results"]) == verdicts.count(Verdict.REGRESSED)
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in LEVELS
        assert result["message"]["text"]
        assert all(len(place["logicalLocations"]) == 1 for place in result["locations"])
        assert re.fullmatch(r"[0-9a-f]{64}", result["partialFingerprints"]["roofwatch/v1"])


def test_a_finding_keeps_its_fingerprint_while_its_numbers_move() -> None:
    base, head = SITUATIONS["regression"]()
    again = head.model_copy(
        update={"measurements": tuple(measured.model_copy() for measured in reversed(head.measurements))}
    )

    first, second = (
        {
            result["partialFingerprints"]["roofwatch/v1"]
            for result in json.loads(to_sarif(judge_pull_request(base, side), version="1"))["runs"][0]["results"]
        }
        for side in (head, again)
    )

    assert first == second
    assert len(first) == 2


def test_a_slower_case_says_how_much() -> None:
    texts = [result["message"]["text"] for result in run_of("regression")["results"]]

    assert any(re.search(r": time \+40\.\d% \(95 % interval \+", text) for text in texts)


def test_no_text_holds_what_does_not_show() -> None:
    for result in run_of("hostile_names")["results"]:
        assert result["message"]["text"].isprintable()
        assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"].isprintable()


def test_a_result_stands_beside_the_source_where_the_record_knows_it() -> None:
    base, head = SITUATIONS["regression"]()
    line = make_source_line(file="my kernels/rms#norm é.py", line=12)
    judgement = judge_pull_request(base, head.model_copy(update={"source_lines": (line,)}))

    first, second = json.loads(to_sarif(judgement, version="1"))["runs"][0]["results"]

    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20kernels/rms%23norm%20%C3%A9.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12},
    }
    assert "physicalLocation" not in second["locations"][0], "of softmax nobody knows where it stands"
