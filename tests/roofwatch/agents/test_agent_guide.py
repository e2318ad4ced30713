"""The call that comes next after an answer of the MCP server."""

from typing import Any

import pytest

from roofwatch.agents.guide import next_call
from roofwatch.model.check_report import REFERENCE_FAILED

PROFILED = {
    "step": [
        {
            "total_ns": 100,
            "functions": [{"name": "Quantise", "forward_ns": 60, "backward_ns": 20}],
            "lines": [{"name": "train.py:7", "innermost_ns": 50}],
        }
    ]
}
SLOW_FUNCTION = {
    "step": [{**PROFILED["step"][0], "functions": []}],
    "culprit": {"name": "quantise", "detail": "ops.py:3"},
}
SLOW_METHOD = {**SLOW_FUNCTION, "culprit": {"name": "Rotary.__call__", "detail": "model.py:19"}}
FLAT = {
    "step": [
        {"total_ns": 100, "functions": [], "lines": [{"name": "train.py:7", "innermost_ns": 9}]}
    ]
}
_WAITS = {"name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "share": 0.6}
WAITS_FOR_DATA = {**FLAT, "traces": [{"time": {"marks": [_WAITS]}}]}
TWO_PROFILES = {
    "stands_out": True,
    "head": {"command": ["train.py"], "culprit": "Mlp.forward", "place": "model.py:9"},
}
WITHOUT_STEPS = {
    "step": [],
    "traces": [{"time": {"operators": [{"name": "aten::copy_", "share": 0.4}]}}],
}
_NO_REFERENCE = f"{REFERENCE_FAILED}: TypeError: argument"
SPEC = {"candidate": "fast.py", "spec": "bench_ops.py"}


@pytest.mark.parametrize(
    ("tool", "arguments", "document", "exit_status", "expected"),
    [
        (
            "profile",
            {"command": ["train.py"]},
            PROFILED,
            0,
            ("propose", {"function": "train.py::Quantise"}),
        ),
        (
            "profile",
            {"command": ["train.py"]},
            SLOW_FUNCTION,
            0,
            ("propose", {"function": "ops.py::quantise"}),
        ),
        (
            "profile",
            {"command": ["train.py"]},
            SLOW_METHOD,
            0,
            ("profile", {"command": ["train.py"]}),
        ),
        (
            "profile",
            {"command": ["train.py"]},
            {**SLOW_METHOD, "folder": "second", "earlier": "first"},
            0,
            ("diff", {"base": "first", "head": "second"}),
        ),
        ("profile", {"command": ["train.py"]}, FLAT, 0, (None, {})),
        (
            "profile",
            {"command": ["train.py"]},
            WAITS_FOR_DATA,
            0,
            ("profile", {"command": ["train.py"]}),
        ),
        ("diff", {}, TWO_PROFILES, 0, ("profile", {"command": ["train.py"]})),
        ("diff", {}, {**TWO_PROFILES, "stands_out": False}, 0, (None, {})),
        (
            "profile",
            {"command": ["train.py"]},
            WITHOUT_STEPS,
            0,
            (None, {}),
        ),
        (
            "profile",
            {"command": ["train.py"], "warmup": 2, "steps": 8},
            {"step": [], "traces": []},
            0,
            ("profile", {"command": ["train.py"]}),
        ),
        ("profile", {"command": ["train.py"]}, {"step": [], "traces": []}, 0, (None, {})),
        ("check", {"target": "ops.py"}, None, 2, ("propose", {})),
        ("check", {"target": "ops.py::f"}, None, 2, ("propose", {"function": "ops.py::f"})),
        ("list_kernels", {}, {"kernels": [{"name": "add", "found": "a.add"}]}, 0, ("propose", {})),
        (
            "propose",
            {},
            {"files": {"/here/bench_ops.py": "written"}},
            0,
            ("check", {"target": "bench_ops.py"}),
        ),
        (
            "static",
            {"path": "bench_ops.py", "base": "HEAD"},
            {},
            1,
            ("ab", {"path": "bench_ops.py", "base": "HEAD"}),
        ),
        ("submit", SPEC, {"verdict": "faster"}, 0, ("ab", {"path": SPEC["spec"], "base": "HEAD"})),
        ("submit", SPEC, {"verdict": "inconclusive"}, 2, ("submit", {**SPEC, "budget": 120.0})),
        (
            "ab",
            {"path": "bench_ops.py", "base": "main", "budget": 20},
            {"judgement": {"cases": [{"verdict": "inconclusive", "reason": "not_timed"}]}},
            2,
            ("static", {"path": "bench_ops.py", "base": "main"}),
        ),
        (
            "ab",
            {"path": "bench_ops.py", "base": "main", "static": True},
            {"judgement": {"cases": [{"verdict": "inconclusive", "reason": "not_timed"}]}},
            2,
            ("diagnose", {"case": "*", "path": "bench_ops.py"}),
        ),
        (
            "ab",
            {"path": "bench_ops.py", "base": "main"},
            {"judgement": {"cases": [{"verdict": "inconclusive", "reason": "too_noisy"}]}},
            2,
            ("ab", {"path": "bench_ops.py", "base": "main", "budget": 120}),
        ),
        (
            "ab",
            {"path": "bench_ops.py", "base": "main", "budget": 480},
            {"judgement": {"cases": [{"verdict": "inconclusive", "reason": "too_noisy"}]}},
            2,
            (None, {}),
        ),
        ("ab", {"path": "bench_ops.py"}, {"judgement": {"cases": []}}, 0, (None, {})),
        ("ab", {"path": "bench_ops.py"}, {"judgement": None}, 0, (None, {})),
        ("submit", {**SPEC, "budget": 500}, {"verdict": "inconclusive"}, 2, (None, {})),
        (
            "check",
            {"target": "ops.py::gelu", "like": "x: float32[8]", "reference": "torch.relu"},
            {"target": "bench_gelu.py", "reports": [{"failed": True, "message": _NO_REFERENCE}]},
            2,
            (
                "check",
                {"target": "ops.py::gelu", "like": "x: float32[8]", "reference": "torch.relu"},
            ),
        ),
        ("ingest", {"files": ["records"]}, {}, 0, ("regressions", {})),
        (
            "check",
            {"target": "bench_ops.py", "case": ["add/n=8"]},
            {"reports": [{"failed": False}]},
            0,
            ("check", {"target": "bench_ops.py"}),
        ),
        (
            "check",
            {"target": "bench_ops.py"},
            {"reports": [{"failed": False}]},
            0,
            ("run", {"path": "bench_ops.py"}),
        ),
    ],
)
def test_an_answer_leads_on(
    tool: str,
    arguments: dict[str, Any],
    document: Any,
    exit_status: int,
    expected: tuple[str | None, dict[str, Any]],
) -> None:
    following = next_call(tool, arguments, document, exit_status)

    assert following is not None
    assert (following.tool, following.arguments) == expected
