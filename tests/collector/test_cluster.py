"""Shares of a suite, and the record that is made of theirs."""

import fnmatch
import uuid
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest

from roofwatch.collector.runs.case_run import CaseRun
from roofwatch.collector.runs.cluster import Share, connect, deal, join, ship
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.model.errors import CollectorError
from roofwatch.model.measurement import CaseRecord
from roofwatch.model.suite_source import SuiteSource
from tests import builders

RUN_ID = uuid.UUID(int=7)


def case_of(kernel: str) -> CaseRecord:
    return builders.make_case(f"{kernel}/n=8/float32/fwd")


def selected(kernel: str, implementation: str = "torch", *, rank_count: int = 1) -> CaseRun:
    return CaseRun(case_of(kernel), builders.make_implementation_info(implementation), rank_count)


def kernels_of(shares: Iterable[Share]) -> list[list[str]]:
    return [[case_id.split("/")[0] for case_id in share.case_ids] for share in shares]


def test_every_case_is_in_one_share_with_all_its_implementations_by_which_shares_are_sized() -> (
    None
):
    subjects = [
        selected(f"case{number}", name) for number in range(10) for name in ("torch", "triton")
    ]

    shares = deal(subjects, 4)

    assert [*chain.from_iterable(kernels_of(shares))] == [f"case{number}" for number in range(10)]
    assert [len(share.case_ids) for share in shares] == [2, 3, 2, 3]
    subjects = [
        *(selected("large", f"variant{number}") for number in range(6)),
        selected("b"),
        selected("c"),
    ]
    assert kernels_of(deal(subjects, 2)) == [["large"], ["b", "c"]]


def test_cases_of_several_devices_have_their_own_shares() -> None:
    shares = deal([selected("a"), selected("all_reduce", rank_count=2), selected("b")], 1)

    assert kernels_of(shares) == [["a", "b"], ["all_reduce"]]
    assert [share.rank_count for share in shares] == [1, 2]


def test_the_plan_of_a_share_selects_only_its_cases() -> None:
    (share,) = deal([selected("odd[1-3]*")], 1)

    (pattern,) = share.plan(RunPlan()).cases or ()

    assert fnmatch.fnmatchcase("odd[1-3]*/n=8/float32/fwd", pattern)
    assert not fnmatch.fnmatchcase("odd2x/n=8/float32/fwd", pattern)


def test_records_of_equal_machines_are_joined_with_the_highest_ceiling() -> None:
    records = [
        builders.make_record(
            measurements=[builders.make_measurement(case_of(kernel).case_id)],
            ceilings=(builders.make_ceiling(per_s=per_s),),
            profiles=(builders.make_profile(case_of(kernel).case_id),),
            preset="quick",
            spent_ns={"timing": 5},
        )
        for kernel, per_s in (("a", 1e10), ("b", 1.1e10))
    ]

    (joined,) = join(records, RUN_ID)

    assert joined.run_id == RUN_ID
    assert [case.kernel for case in joined.cases] == ["a", "b"]
    assert len(joined.measurements) == 2
    assert [profile.case_id for profile in joined.profiles] == [
        case.case_id for case in joined.cases
    ]
    assert joined.preset == "quick"
    assert [ceiling.per_s for ceiling in joined.ceilings] == [1.1e10]
    assert joined.spent_ns == {"timing": 10}


def test_records_of_different_machines_stay_apart() -> None:
    records = [
        builders.make_record(
            environment=builders.make_environment(device_name=device),
            measurements=[builders.make_measurement(f"case{number}/n=8/float32/fwd")],
        )
        for number, device in enumerate(("Example CPU", "Other CPU", "Example CPU"))
    ]

    joined = join(records, RUN_ID)

    assert [[case.kernel for case in record.cases] for record in joined] == [
        ["case0", "case2"],
        ["case1"],
    ]
    assert len({record.run_id for record in joined}) == 2
    assert joined == join(records, RUN_ID)


def test_a_machine_with_another_roofwatch_measures_nothing(tmp_path: Path) -> None:
    sent = ship(SuiteAt(SuiteSource(), builders.make_commit(), "example"))
    object.__setattr__(sent, "version", "0.0.1")

    with pytest.raises(CollectorError, match="install that"):
        sent.unpacked(tmp_path)


def test_a_missing_cluster_is_one_line() -> None:
    suite = ship(SuiteAt(SuiteSource(), builders.make_commit(), "example"))

    with pytest.raises(CollectorError, match="Ray cluster") as caught, connect("auto", suite):
        pass

    assert "\n" not in str(caught.value)
