"""Comparison of several versions of Triton, and its report."""

import pytest

from roofwatch.ci.static.toolchain_audit import AuditTable, Build, audit_tables, judge_upgrades
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from tests.builders import make_static_facts


def make_build(triton: str, *facts: StaticFacts) -> Build:
    return Build(triton, facts)


def compiled_by(triton: str, **fields: object) -> StaticFacts:
    return make_static_facts(code=f"code of {triton}", toolchain={"triton": triton}, **fields)  # type: ignore[arg-type]


def test_an_upgrade_that_spills_is_worse_and_one_that_stops_is_better() -> None:
    builds = [
        make_build("3.6.0", compiled_by("3.6.0")),
        make_build("3.7.0", compiled_by("3.7.0", local_bytes=64)),
        make_build("3.8.0", compiled_by("3.8.0", local_bytes=0)),
    ]

    there, back = judge_upgrades(builds)

    assert [item.head and item.head.local_bytes for item in there.worse] == [64]
    assert there.better == ()
    assert back.worse == ()
    assert len(back.better) == 1


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT])
def test_failures_of_the_machine_are_not_compared(outcome: Outcome) -> None:
    builds = [
        make_build("3.6.0", compiled_by("3.6.0"), compiled_by("3.6.0", target="gfx942")),
        make_build("3.7.0", make_static_facts(outcome=outcome), compiled_by("3.7.0", target="gfx942")),
        make_build("3.8.0", compiled_by("3.8.0"), compiled_by("3.8.0", target="gfx942")),
    ]

    upgrades = judge_upgrades(builds)

    assert [upgrade.worse + upgrade.better for upgrade in upgrades] == [(), ()]
    assert [build.is_complete for build in builds] == [True, False, True]
    assert len(builds[1].failed) == 1


def tables_of(*sides: tuple[StaticFacts, ...]) -> list[AuditTable]:
    builds = [make_build(f"3.{6 + index}.0", *facts) for index, facts in enumerate(sides)]
    return audit_tables(builds, judge_upgrades(builds))


def test_targets_with_the_same_change_share_a_row() -> None:
    before = tuple(make_static_facts(target=target) for target in ("sm_80", "sm_90"))
    after = tuple(make_static_facts(target=target, local_bytes=64, code="spills") for target in ("sm_80", "sm_90"))

    changes, failures, counts = tables_of(before, after)

    ((verdict, function, _, change, targets),) = changes.rows
    assert (verdict, function, targets) == ("regressed", "_rms_norm_kernel", "sm_80, sm_90")
    assert "0 B → 64 B" in change
    assert failures.rows == []
    assert counts.rows == [("3.6.0 → 3.7.0", "1 / 0 / 0 / 0", "1 / 0 / 0 / 0")]


def test_a_compiler_message_is_shown() -> None:
    failed = make_static_facts(outcome=Outcome.COMPILE_ERROR, message="error: x")

    _, failures, _ = tables_of((make_static_facts(),), (failed,))

    assert [row[2:] for row in failures.rows] == [("compile_error: error: x", "3.7.0", "sm_90")]
