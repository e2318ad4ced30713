"""Answers of the MCP server, cut to what an agent reads at once."""

import json
from typing import Any

from roofwatch.agents.answers import MAX_ANSWER_BYTES, JobReport, to_answer


def answer(
    document: Any, *, tool: str = "", pointer: str = "", load: float = 0.0
) -> dict[str, Any]:
    report = JobReport(
        job="check-1",
        state="finished",
        exit_status=1,
        document=document,
        tool=tool,
        load=load,
    )
    text = to_answer(report, is_full=False, pointer=pointer)
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


ENVIRONMENT = {f"fact_{number}": "x" * 40 for number in range(25)}
CHANGES = [
    {"case_id": f"rotary/{number}", "verdict": "regressed", "relative_interval": [0.1, 0.2]}
    for number in range(6)
]


def make_judged(number: int) -> dict[str, Any]:
    return {
        "subject": {"case_id": f"rotary/{number}", "implementation": "model", "target": "sm_90"},
        "metric": "registers",
        "base": 30.0,
        "head": 28.123456,
        "verdict": "unchanged",
        "reason": "code_changed",
        "evidence": {"text": "x" * 400},
    }


def make_judgement(case_count: int) -> dict[str, Any]:
    return {
        "base_environment": ENVIRONMENT,
        "head_environment": ENVIRONMENT,
        "verdict": "regressed",
        "cases": [make_judged(number) for number in range(case_count)],
    }


def test_the_changes_of_a_pair_are_whole_in_a_short_answer() -> None:
    document = {"summary": "regressed", "changed": CHANGES, "judgement": make_judgement(40)}

    cut = answer(document, tool="ab")

    assert cut["result"]["changed"] == CHANGES
    assert next(iter(cut["result"])) == "changed"
    assert cut["result"]["judgement"]["verdict"] == "regressed"


def test_twelve_judged_rows_fit_into_a_short_answer() -> None:
    cut = answer({"judgement": make_judgement(12)}, tool="ab", pointer="/judgement/cases")

    assert [row["case_id"] for row in cut["result"]] == [f"rotary/{n}" for n in range(12)]
    assert cut["result"][0]["head"] == 28.12


def test_only_what_failed_is_answered_by_its_pointer() -> None:
    reports: list[dict[str, Any]] = [
        {"case_id": f"case {number}", "outcome": "ok", "failed": False, "repeat": "x" * 200}
        for number in range(60)
    ]
    reports[41] |= {"outcome": "incorrect", "failed": True}
    proofs = [{"claim": f"claim {n}", "result": "proven", "detail": "x" * 60} for n in range(7)]

    cut = answer({"summary": "wrong", "proofs": proofs, "reports": reports}, tool="check")

    assert cut["result"]["proofs"] == proofs
    (failed,) = cut["result"]["reports"]
    assert failed["pointer"] == "/reports/41"


def test_a_short_profile_lists_five_lines_by_own_time() -> None:
    lines = [
        {
            "name": f"model.py:{number}",
            "detail": "forward" * 10,
            "forward_ns": 100,
            "backward_ns": 0,
            "innermost_ns": number,
        }
        for number in range(40)
    ]
    step = {
        "where": "host",
        "total_ns": 100,
        "modules": [],
        "functions": [],
        "calls": [],
        "lines": lines,
    }

    cut = answer({"summary": "slow", "step": [step], "traces": []}, tool="profile")

    shown = cut["result"]["step"][0]["lines"]
    assert [line["name"] for line in shown[:5]] == [f"model.py:{n}" for n in (39, 38, 37, 36, 35)]
    assert shown[0]["own_share"] == 0.39
    assert len(shown) == 6


def test_a_short_diff_lists_what_is_new_or_gone_in_a_step() -> None:
    def row(change: str, base: list[str], head: list[str], change_ns: float) -> dict[str, Any]:
        return {
            "change": change,
            "base_names": base,
            "head_names": head,
            "base_launches": float(len(base)),
            "head_launches": float(len(head)),
            "change_ns": change_ns,
        }

    matched = [row("matched", ["aten::mm"], ["aten::mm"], -9_000.0)] * 300
    removed = row("removed", ["aten::copy_"] * 2, [], -5_000.0)
    ledger = {"title": "host", "base": {}, "rows": [*matched, removed]}
    side = {"command": ["python", "train.py"], "step_ns": [1] * 200, "culprit": "f"}
    document = {"summary": "faster", "base": side, "head": side, "ledgers": [ledger]}

    cut = answer(document, tool="diff")["result"]

    assert cut["ledgers"][0]["not_matched"] == ["removed: aten::copy_, 2 -> 0 a step, -5 µs"]
    assert cut["ledgers"][0]["matched"][-1] == "... 295 more"
    assert cut["base"]["culprit"] == "f"


def test_only_a_busy_machine_makes_times_uncertain() -> None:
    document = {"summary": "timed", "records": []}

    assert answer(document, tool="run", load=0.4)["summary"] == "timed"
    assert "load 3.0" in answer(document, tool="run", load=3.0)["summary"]


def test_the_summary_of_a_job_without_a_result_is_its_last_error() -> None:
    report = JobReport(
        job="history-1",
        state="finished",
        exit_status=2,
        errors=("warning: no GPU", "roofwatch: no history is stored"),
    )

    cut = json.loads(to_answer(report, is_full=False, pointer=""))

    assert cut["summary"] == "roofwatch: no history is stored"
