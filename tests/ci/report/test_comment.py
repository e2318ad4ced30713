"""The comment, one golden file per situation.

After an intended change: `ROOFWATCH_UPDATE_GOLDEN=1 python -m pytest
tests/ci/report/test_comment.py`, and read the difference."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.forges.check_run import annotations_of
from roofwatch.ci.messages import code
from roofwatch.ci.report.cells import half_width
from roofwatch.ci.report.comment import Links, to_markdown
from roofwatch.ci.report.not_measured import CoverageGap, Gap, NotMeasured, coverage_gaps
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.machine import Outcome
from roofwatch.model.verdict import exit_code
from tests.builders import make_commit, make_source_line
from tests.ci.situations import SITUATIONS

GOLDEN = Path(__file__).parent / "golden"
LINKS = Links(
    run="https://github.example/example/project/actions/runs/10",
    dashboard="https://dash.example/",
    source="https://github.example/example/project/blob/5afee0de",
)


@cache
def comment(situation: str) -> str:
    return to_markdown(judge_pull_request(*SITUATIONS[situation]()), links=LINKS)


def golden(situation: str, written: str) -> str:
    path = GOLDEN / f"{situation}.md"
    if os.environ.get("ROOFWATCH_UPDATE_GOLDEN"):
        path.write_text(written)
    return path.read_text()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_comment_is_the_golden_one(situation: str) -> None:
    written = comment(situation)

    assert written == golden(situation, written)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_mark_of_the_comment_is_that_of_the_exit_status(situation: str) -> None:
    status = exit_code(judge_pull_request(*SITUATIONS[situation]()).verdict)

    assert re.match(rf"(### |\*\*){'✅❌⚪'[status]} ", comment(situation))


@pytest.mark.parametrize(
    ("situation", "error", "side"),
    [
        (
            "head_not_loaded",
            "SuiteError: kernels/norm.py cannot be imported\nModuleNotFoundError: no `fla`",
            "head",
        ),
        ("base_not_loaded", "SuiteError: kernels/norm.py cannot be imported", "base"),
        ("no_kernel_touched", "", None),
    ],
)
def test_the_comment_without_records_is_the_golden_one(
    situation: str, error: str, side: str | None
) -> None:
    missing = NotMeasured.of(make_commit(1), error, side)

    written = missing.to_markdown()

    assert written == golden(situation, written)
    assert missing.is_failure == (side == "head")


def test_a_head_that_cannot_be_imported_blames_no_toolchain() -> None:
    assert "toolchain" not in comment("head_not_importable")


def test_the_comment_has_the_error_of_an_import_once() -> None:
    assert comment("head_not_importable").count("ModuleNotFoundError") == 1


def test_an_annotation_has_the_error_of_an_import_once() -> None:
    judgement = judge_pull_request(*SITUATIONS["head_not_importable"]())
    line = make_source_line(implementation="triton")
    lines = tuple(
        line.model_copy(update={"kernel": kernel}) for kernel in ("rms_norm", "softmax", "swiglu")
    )
    for annotation in annotations_of(replace(judgement, source_lines=lines)):
        assert annotation.message.count("ModuleNotFoundError") == 1


def test_hostile_text_stays_in_code_spans() -> None:
    outside = re.sub(r"`[^`\n]*`", "", comment("hostile_names"))
    outside = re.sub(
        r"\[[\w ]*\]\(https://(roofwatch\.github\.io|\w+\.example)/[\w/.#%?=&+-]+\)", "", outside
    )

    for trace in ("@", "#1", "evil", "script", "](", "&", "</td>", "\u202e"):
        assert trace not in outside
    assert outside.count("<details>") == outside.count("</details>")


@given(text=st.text(max_size=300))
def test_untrusted_text_never_leaves_its_code_span(text: str) -> None:
    span = code(text)

    assert re.fullmatch(r"`[^`|\r\n]+`", span)
    assert len(span) <= 162
    assert span.isprintable()


OK = frozenset({Outcome.OK})


def gaps(**cases: dict[str, frozenset[Outcome]]) -> dict[tuple[str, str], CoverageGap]:
    return {(one.runner_class, one.gap): one for one in coverage_gaps(cases)}


def test_a_case_with_a_failing_implementation_is_failing() -> None:
    found = gaps(
        cpu={
            "softmax/1": frozenset({Outcome.OK, Outcome.CRASHED, Outcome.TIMED_OUT}),
            "softmax/2": OK,
        }
    )
    assert found["cpu", Gap.FAILING].outcomes == (Outcome.CRASHED, Outcome.TIMED_OUT)
    assert found["cpu", Gap.FAILING].case_ids == ("softmax/1",)
    assert found["cpu", Gap.FAILING].case_count == 2


def test_a_case_without_a_result_is_a_gap() -> None:
    found = gaps(cpu={"softmax/1": OK, "softmax/2": frozenset()}, gpu={"softmax/2": OK})
    assert found["cpu", Gap.NEVER_MEASURED].case_ids == ("softmax/2",)
    assert found["gpu", Gap.NEVER_MEASURED].case_ids == ("softmax/1",)


@pytest.mark.parametrize(
    ("factors", "words"), [((1.39, 1.41), " ±1.0%"), ((7.52, 17.19), " (+652% to +1,619%)")]
)
def test_a_wide_interval_is_written_by_its_ends(factors: tuple[float, float], words: str) -> None:
    slower = judge_pull_request(*SITUATIONS["regression"]()).cases[0]
    low, high = map(math.log, factors)

    assert half_width(replace(slower, log_interval=(low, high))) == words
