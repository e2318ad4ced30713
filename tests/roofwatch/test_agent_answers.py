"""Answers of the MCP server, cut to what an agent reads at once."""

import json
from typing import Any

from roofwatch.agent_answers import MAX_ANSWER_BYTES, JobReport, to_answer


def answer(document: Any) -> dict[str, Any]:
    report = JobReport(job="check-1", state="finished", exit_status=1, document=document)
    text = to_answer(report, is_full=False, pointer="")
    assert len(text.encode()) <= MAX_ANSWER_BYTES
    cut: dict[str, Any] = json.loads(text)
    return cut


def test_a_long_result_is_cut_before_its_summary() -> None:
    summary = "wrong: masked_mean triton; " + "one of many words; " * 50
    document = {"summary": summary, "reports": [{"message": "x" * 300} for _ in range(100)]}

    cut = answer(document)

    assert cut["is_cut"]
    assert cut["summary"] == summary


def test_a_summary_that_alone_is_too_long_is_cut_too() -> None:
    cut = answer({"summary": "µ" * 5_000, "reports": ["x" * 10_000]})

    assert cut["summary"].endswith("...")
