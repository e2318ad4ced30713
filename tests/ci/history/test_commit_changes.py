"""Compiled facts of a history, as changes and as evidence about times."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from roofwatch.model.history import Cause, Regression, RunSetting, Series
from roofwatch.model.verdict import Verdict
from roofwatch.tables.stored import regressions_table
from tests.builders import make_commit_ref
from tests.ci.values import judge_history, make_series, make_static_series, only, stepped


def test_a_spill_is_a_confirmed_regression_of_the_code() -> None:
    found = only(judge_history([make_static_series("local_bytes", [0, 0, 48, 48], "aabb")]))

    assert found.commit == make_commit_ref(2)
    assert found.verdict is Verdict.REGRESSED
    assert found.cause is Cause.CODE
    assert found.is_confirmed
    assert "local memory per thread 0 B to 48 B" in found.summary


def test_a_change_between_commits_that_were_not_measured_lies_in_a_range() -> None:
    whole = make_static_series("local_bytes", [0, 0, 0, 48, 48, 48], "aaabbb")
    first, _, _, _, last, _ = whole.points

    two = only(judge_history([replace(whole, points=(first, last))]))
    narrowed = only(judge_history([whole]))

    assert (two.base, two.commit, two.commit_count) == (first.commit, last.commit, 4)
    assert two.is_range
    text = f"one of 4 commits after {first.commit.short_sha}, up to {last.commit.short_sha}"
    assert two.range_text == text
    assert last.commit.subject not in printed([two])
    assert text in printed([two])
    assert (narrowed.commit, narrowed.commit_count) == (make_commit_ref(3), 1)
    assert narrowed.commit.subject in printed([narrowed])


def printed(found: list[Regression]) -> str:
    """What the commands `ingest` and `show regressions` print."""
    console = Console(width=400, file=io.StringIO())
    console.print(regressions_table(found))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_target_that_no_longer_compiles_is_one_regression() -> None:
    history = [
        make_static_series("local_bytes", [0, None], "ab"),
        make_static_series("registers", [32, None], "ab"),
    ]

    found = only(judge_history(history))

    assert found.verdict is Verdict.REGRESSED
    assert found.is_confirmed
    assert len(found.change_points) == 1
    assert (
        "compiling was ok, is compile_error (out of registers)" in found.change_points[0].evidence
    )


@pytest.mark.parametrize(
    ("codes", "expected", "cause"),
    [
        ("a" * 16, "machine code unchanged on all 1 targets", Cause.UNKNOWN),
        ("a" * 8 + "b" * 8, "machine code changed on 1 of 1 targets", Cause.CODE),
    ],
)
def test_the_machine_code_is_evidence_for_a_step(codes: str, expected: str, cause: Cause) -> None:
    history = [
        make_series(stepped(), implementation="triton"),
        make_static_series("registers", [32] * 16, codes),
    ]

    found = only(judge_history(history))

    assert expected in found.change_points[0].evidence
    assert found.cause is cause


def test_occupancy_decides_only_if_a_block_no_longer_fits() -> None:
    less = make_static_series("theoretical_occupancy", [0.5, 0.25], "ab")
    none = make_static_series("theoretical_occupancy", [0.5, 0.0], "ab")

    assert judge_history([less]) == []
    assert only(judge_history([none])).verdict is Verdict.REGRESSED


def test_a_spill_with_another_compiler_suspects_the_toolchain() -> None:
    spills = make_static_series("local_bytes", [0, 48], "ab")
    settings = [RunSetting("1", toolchain=(("triton", version),)) for version in ("3.6.0", "3.7.1")]
    points = [
        replace(point, setting=setting)
        for point, setting in zip(spills.points, settings, strict=True)
    ]

    found = only(judge_history([Series(spills.key, tuple(points))]))

    assert found.cause is Cause.TOOLCHAIN
    assert "triton 3.6.0 → 3.7.1" in found.suspects[0].sentence
