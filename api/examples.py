"""What OpenAPI shows of each document: mostly made of the values that the routes answer with. A test holds each against
its schema.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from roofwatch.db.auth.values import AuditEntry, Triage, TriageState
from roofwatch.db.queries.run_values import CeilingValue, RunSummary
from roofwatch.db.regressions.judging import RunState
from roofwatch.db.values import Cause, ChangePoint, CommitRef, Regression, RunSetting, SeriesKey, Suspect, Verdict

RUN_ID = "0b9c6c8e-9a1e-4a0e-8f6e-2f1c1c0a7d11"
OTHER_RUN_ID = "3d6f0a52-8c1b-4b7e-9a57-6f1de0c9b2a4"
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_PROJECT = "owner/kernels"
_CASE_ID = "rms_norm/n_rows=4096,n_cols=8192/bfloat16/fwd"
_RUNNER_CLASS = "NVIDIA H100 80GB HBM3"
_REGRESSION_ID = UUID("6c7a5f8e-33f0-5c5e-9e0c-51b6b8a3d9f2")


def _at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute, tzinfo=UTC)


_BASE = CommitRef(41, "89abcdef0123456789abcdef0123456789abcdef", "Example Engineer", "Tile by rows", _at(11))
_HEAD = CommitRef(42, "0123456789abcdef0123456789abcdef01234567", "Example Engineer", "Sum exactly", _at(12))
_KEY = SeriesKey(_PROJECT, _CASE_ID, "triton", "median_ns", _RUNNER_CLASS)
_RUN = RunSummary(
    run_id=RUN_ID,
    project=_PROJECT,
    commit=_HEAD,
    runner_class=_RUNNER_CLASS,
    device_name=_RUNNER_CLASS,
    started_at=_at(13),
    finished_at=_at(13, 5),
    harness_version="1",
    is_dirty=False,
    outcome_counts={"ok": 1},
)
_MEASURED = {
    "case_id": _CASE_ID,
    "kernel": "rms_norm",
    "family": "normalisation",
    "shape": {"n_rows": 4096, "n_cols": 8192},
    "dtype": "bfloat16",
    "direction": "fwd",
    "flop_count": 1.34e8,
    "memory_bytes": 1.342e8,
    "implementation": "triton",
    "outcome": "ok",
    "message": None,
    "median_ns": 59_200.0,
    "low_ns": 58_900.0,
    "high_ns": 59_600.0,
    "sample_count": 1_000,
    "bound": "memory",
    "utilisation": 0.74,
    "rmse_ratio": 0.0017,
    "accuracy_outcome": "ok",
    "timer": "cupti",
    "cache": "cold",
    "block_count": 10,
    "launches_per_sample": 1,
}
_COMPILED = {
    "case_id": _CASE_ID,
    "implementation": "triton",
    "function": "rms_norm_kernel",
    "target": "sm_90",
    "outcome": "ok",
    "message": None,
    "configuration": {"BLOCK": 8192, "num_warps": 8},
    "registers": 64,
    "spilled_registers": 0,
    "local_bytes": 0,
    "shared_bytes": 64,
    "code_bytes": 6_144,
    "code_hash": SHA256,
}
_STATE = RunState(RUN_ID, _PROJECT, SHA256, _at(13, 6), is_quarantined=False, is_judged=True)
_POINT = {
    "commit": _HEAD,
    "run_id": RUN_ID,
    "measured_at": _at(13),
    "outcome": "ok",
    "value": 59_200.0,
    "low": 58_900.0,
    "high": 59_600.0,
    "block_count": 10,
    "setting": RunSetting("1", "580.65.06", "9.0", (("triton", "3.7.1"),)),
    "timing": "cupti, cold",
}
_EVIDENCE = "median 52 µs before, 59.2 µs since, 18 runs on either side"
_TRIAGED = {
    "regression_id": str(_REGRESSION_ID),
    "regression": Regression(
        project=_PROJECT,
        commit=_HEAD,
        kernel="rms_norm",
        verdict=Verdict.REGRESSED,
        cause=Cause.CODE,
        summary="rms_norm became 14% slower in 1 of 1 series",
        change_points=(ChangePoint(_KEY, _HEAD, _BASE, Verdict.REGRESSED, 52_000.0, 59_200.0, _EVIDENCE),),
        suspects=(
            Suspect(Cause.CODE, 0.9, "its machine code changed with this commit"),
            Suspect(Cause.UNKNOWN, 0.1, "what nothing was recorded of"),
        ),
        family="1 of 1 series of rms_norm",
        typical_change=0.138,
        is_alert=True,
    ),
    "triage": Triage(_REGRESSION_ID),
}
_DECIDED = _TRIAGED | {
    "triage": Triage(
        _REGRESSION_ID,
        TriageState.EXPECTED,
        "Example Engineer",
        "The price of the exact sum; agreed in the review.",
        _at(15),
    )
}
_ENTRY = AuditEntry(
    entry_id=7,
    at=_at(15),
    actor="token 1f2e3d4c5b6a",
    person="Example Engineer",
    action="triage",
    project=_PROJECT,
    subject=str(_REGRESSION_ID),
    before="new",
    after="expected",
    reason="The price of the exact sum; agreed in the review.",
)


def _document(value: object) -> Any:
    return TypeAdapter(Any).dump_python(value, mode="json")


def _page(value: object) -> dict[str, Any]:
    return {"items": [_document(value)], "next": None}


RUNS = _page(_RUN)
RUN = _document(
    {
        "summary": _RUN,
        "ceilings": [CeilingValue("memory", "dram", None, 3.05e12)],
        "cases": [_MEASURED],
        "static_rows": [_COMPILED],
    }
)
STATE = _document(_STATE)
SERIES_KEYS = _page(_KEY)
SERIES = _page({"key": _KEY, "points": [_POINT]})
REGRESSIONS = _page(_TRIAGED)
DECIDED = _document(_DECIDED)
PROJECTS = _page(_PROJECT)
ENTRIES = _page(_ENTRY)
ASKED = {"project": _PROJECT, "runner_classes": []}
ANSWER = [_document(_BASE), _document(_HEAD)]
"""Of the question `list_commits`."""
HEALTH = {"status": "ok"}
ARTEFACTS = {
    "items": [{"name": "trace-rank0.json.gz", "kind": "trace", "sha256": SHA256, "size_bytes": 4, "is_stored": True}],
    "next": None,
}
RECORD: dict[str, Any] = {
    "schema_version": "1.4",
    "run_id": RUN_ID,
    "project": _PROJECT,
    "commit": {
        "sha": _HEAD.sha,
        "first_parent_count": 42,
        "committed_at": "2026-03-01T12:00:00Z",
    },
    "started_at": "2026-03-01T13:00:00Z",
    "finished_at": "2026-03-01T13:05:00Z",
    "harness_version": "1",
    "environment": {
        "device_kind": "cpu",
        "device_name": "Example CPU",
        "device_memory_bytes": 17179869184,
        "cpu_name": "Example CPU",
        "core_count": 4,
        "thread_count": 4,
        "os": "Linux 6.1",
        "python_version": "3.11.7",
        "torch_version": "2.13.0",
    },
}
_SIDE = {
    "measured": "ok",
    "accuracy": "ok",
    "message": None,
    "median_ns": 52_000.0,
    "utilisation": 0.84,
    "bound": "memory",
    "rmse_ratio": 0.0017,
    "worst_tensor": "out",
}
COMPARISON: dict[str, Any] = {
    "base_run_id": OTHER_RUN_ID,
    "head_run_id": RUN_ID,
    "exit_code": 1,
    # not all of it: the comment and docs/analysis.md say what each part means
    "judgement": {
        "project": _PROJECT,
        "base": {"sha": _BASE.sha, "first_parent_count": 41, "subject": _BASE.subject, "is_dirty": False},
        "head": {"sha": _HEAD.sha, "first_parent_count": 42, "subject": _HEAD.subject, "is_dirty": False},
        "is_paired": True,
        "verdict": "regressed",
        "counts": {"regressed": 1},
        "refusals": [],
        "notes": [],
        "cases": [
            {
                "case_id": _CASE_ID,
                "implementation": "triton",
                "verdict": "regressed",
                "reason": "beyond_threshold",
                "base": _SIDE,
                "head": _SIDE | {"median_ns": 59_200.0, "utilisation": 0.74},
                "comparison": {
                    "verdict": "regressed",
                    "reason": "beyond_threshold",
                    "base_ns": 52_000.0,
                    "head_ns": 59_200.0,
                    "log_ratio": 0.1297,
                    "log_interval": [0.1251, 0.1342],
                    "block_count": 20,
                    "threshold": 0.03,
                    "p_value": 1.9e-6,
                    "more_blocks": None,
                    "block_deviation": 0.004,
                },
                "detail": None,
                "cycles": None,
                "left_out": [],
                "flips": [],
            }
        ],
        "static": [],
        "thresholds": {"relative_change": 0.03},
        "detectable_change": 0.01,
    },
}
