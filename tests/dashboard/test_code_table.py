"""How compiled code moved, a row for each target."""

from __future__ import annotations

from typing import Any

from roofwatch.ci.static.comparison import StaticJudgement, compare_static
from roofwatch.dashboard.tables.code import code_table
from tests.builders import CASE_ID, make_static_facts


def judged(moves: dict[str, dict[str, tuple[Any, Any]]]) -> tuple[StaticJudgement, ...]:
    """Of targets, facts before and after."""
    sides = [
        [
            make_static_facts(
                CASE_ID, target=target, code=f"{side}", **{name: both[side] for name, both in facts.items()}
            )
            for target, facts in moves.items()
        ]
        for side in (0, 1)
    ]
    return compare_static(*sides, base_toolchain={}, head_toolchain={}).judged


def test_a_target_has_one_row_with_what_moved_and_what_got_worse_comes_first() -> None:
    frame = code_table(
        judged(
            {
                "sm_80": {"registers": (64, 72), "local_bytes": (0, 0)},
                "sm_120": {"registers": (64, 255), "local_bytes": (0, 96)},
                "sm_100": {"registers": (64, 64), "local_bytes": (0, 32)},
            }
        )
    )
    assert frame["target"].tolist() == ["sm_100", "sm_120", "sm_80"]
    assert frame["judged"].tolist() == ["◆ regressed", "◆ regressed", "changed"]
    assert frame["registers"].tolist() == ["64", "64 → 255", "64 → 72"]
    assert frame["local memory"].tolist() == ["0 B → 32 B", "0 B → 96 B", "0 B"]


def test_facts_that_moved_nowhere_and_a_function_that_is_the_only_one_have_no_column() -> None:
    frame = code_table(judged({"sm_80": {"registers": (64, 72)}}))
    assert frame.columns.tolist() == ["target", "judged", "registers"]
