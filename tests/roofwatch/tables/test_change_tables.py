"""Changes of a pair of records as tables."""

from rich.table import Table

from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.tables.changes import changes_table, times_table
from tests.builders import CASE_ID, make_measurement, make_record, make_static_facts


def facts_of(registers: dict[str, int]) -> list[StaticFacts]:
    return [
        make_static_facts(CASE_ID, target=target, registers=count, code=str(count))
        for target, count in registers.items()
    ]


def cells_of(table: Table, column: str) -> list[str]:
    (cells,) = [list(made.cells) for made in table.columns if made.header == column]
    return [str(cell) for cell in cells]


def test_targets_of_a_function_share_a_row_with_the_range_of_each_fact() -> None:
    base = make_record(measurements=[], static_facts=facts_of({"sm_80": 10, "sm_90": 12}))
    head = make_record(measurements=[], static_facts=facts_of({"sm_80": 20, "sm_90": 25}))

    table = changes_table(judge_pull_request(base, head).static)

    assert cells_of(table, "targets") == ["sm_80 sm_90"]
    (change,) = cells_of(table, "change")
    assert "registers per thread 10 to 12 → 20 to 25" in change


def test_a_new_spill_stands_above_facts_that_decide_nothing() -> None:
    base = [
        make_static_facts(CASE_ID, target=target, code="base") for target in ("gfx942", "sm_90")
    ]
    head = [
        make_static_facts(CASE_ID, target="gfx942", code="head", registers=60),
        make_static_facts(CASE_ID, target="sm_90", code="head", local_bytes=80, spill_stores=20),
    ]
    sides = [make_record(measurements=[], static_facts=facts) for facts in (base, head)]

    table = changes_table(judge_pull_request(*sides).static)

    assert cells_of(table, "verdict") == ["regressed", "unchanged"]


def test_cases_that_were_not_timed_for_one_reason_share_a_row() -> None:
    other_id = CASE_ID.replace("float32", "bfloat16")
    sides = []
    for code in ("first", "second"):
        untimed = [
            make_measurement(
                case_id, implementation="triton", outcome=Outcome.UNSUPPORTED, message="no GPU"
            )
            for case_id in (CASE_ID, other_id)
        ]
        facts = [make_static_facts(case_id, code=code) for case_id in (CASE_ID, other_id)]
        sides.append(make_record(measurements=untimed, static_facts=facts))

    table = times_table(judge_pull_request(*sides).cases)

    assert cells_of(table, "case") == [f"{other_id} and 1 more"]
    (note,) = cells_of(table, "note")
    assert note == "time not measured (no GPU); code changed"
