"""Which cases a commit carries, and which of them are timed all the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from roofwatch.ci.watching.carrying import find_carried, rotating_share
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from tests.builders import (
    CASE_ID,
    NOON,
    make_environment,
    make_record,
    make_static_facts,
)

GPU = make_environment(device_kind="cuda", device_name="GPU A", compute_capability="9.0")
KERNEL = CASE_ID.partition("/")[0]
SUBJECT = (CASE_ID, "triton")


def record(number: int = 0, host: str = "a", **fields: Any) -> RunRecord:
    return make_record(
        number,
        environment=fields.pop("environment", GPU),
        static_facts=fields.pop("static_facts", (make_static_facts(),)),
        host_digests={KERNEL: host},
        **fields,
    )


def test_a_case_whose_code_is_all_equal_is_carried() -> None:
    renamed = record(1, source_digests={KERNEL: "other"})

    assert find_carried(record(), renamed) == {SUBJECT}


def test_a_case_is_not_carried_if_anything_it_depends_on_differs() -> None:
    other_code = (make_static_facts(code="second version"),)
    other_launch = (make_static_facts(configuration={"BLOCK": 128, "num_warps": 8}),)
    failed = (make_static_facts(outcome=Outcome.COMPILE_ERROR),)
    other_torch = GPU.model_copy(update={"torch_version": "2.99"})

    differing = [
        record(1, static_facts=other_code),
        record(1, static_facts=other_launch),
        record(1, static_facts=failed),
        record(1, static_facts=()),
        record(1, host="b"),
        record(1, requirements={"numpy": ">=2"}),
        record(1, environment=other_torch),
    ]

    assert [find_carried(record(), head) for head in differing] == [frozenset()] * len(differing)


def test_code_that_does_not_run_here_is_not_carried() -> None:
    cpu = make_environment()

    assert find_carried(record(environment=cpu), record(1, environment=cpu)) == frozenset()


def test_each_of_the_carried_cases_is_timed_in_turn() -> None:
    timed_at = {(f"{KERNEL}/n={size}/float32/fwd", "triton"): NOON for size in range(20)}
    timed_at["softmax/n=1/float32/fwd", "triton"] = NOON
    turns = []
    for run in range(1, 11):
        chosen = rotating_share(timed_at, [KERNEL])
        turns.append(chosen)
        timed_at |= dict.fromkeys(chosen, NOON + timedelta(hours=run))

    assert [len(chosen) for chosen in turns] == [2] * 10
    assert len(frozenset().union(*turns)) == 20


def test_of_few_carried_cases_one_is_timed() -> None:
    assert rotating_share({SUBJECT: NOON}, [KERNEL]) == {SUBJECT}
    assert rotating_share({SUBJECT: NOON}, []) == frozenset()
