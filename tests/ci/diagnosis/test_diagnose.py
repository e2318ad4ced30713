"""Each rule on a record in which its condition holds, and on records in which it does not."""

from pathlib import Path
from typing import Any

import pytest

from roofwatch.ci.diagnosis.diagnose import RULES, judge_limits
from roofwatch.ci.diagnosis.evidence import Limit
from roofwatch.ci.diagnosis.finding import Weight
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord
from roofwatch.profiles.diagnosing import to_lines
from tests.builders import make_case, make_measurement
from tests.ci.ailments import (
    AILMENTS,
    NORM,
    PRODUCT,
    code,
    counted,
    diagnosed,
    evidence,
    found,
    gpu,
    on_cpu,
    record,
    timed,
    without_counters,
)

GOLDEN = Path(__file__).with_name("diagnoses.txt")


def test_every_rule_has_a_situation() -> None:
    found = {finding.rule for make in AILMENTS.values() for finding in diagnosed(make()).findings}
    assert found == {rule.__name__ for rule in RULES}


def test_the_diagnoses_are_the_golden_ones() -> None:
    lines = []
    for ailment, make in AILMENTS.items():
        lines += [f"== {ailment}", *to_lines([diagnosed(make())]), ""]
    text = "\n".join(lines)
    assert text == GOLDEN.read_text(), "write the new text to the golden file if it is better"


def test_findings_come_in_the_order_of_their_speedups() -> None:
    made = record(
        NORM,
        timed(NORM, 240_000.0),
        timed(NORM, 200_000.0, implementation="compile"),
        facts=(code(NORM, instructions={"global_load.16": 8}),),
        counters=(counted(NORM, dram_bytes=9e8),),
    )
    rules = [finding.rule for finding in diagnosed(made).findings]
    assert rules == ["near_roof", "excess_traffic", "faster_implementation", "narrow_loads"]


def test_half_of_the_data_in_narrow_loads_is_a_finding() -> None:
    made = record(
        NORM,
        timed(NORM, 240_000.0),
        facts=(code(NORM, instructions={"global_load.32": 8, "global_load.128": 2}),),
        counters=(counted(NORM, dram_bytes=4e8),),
    )

    assert "narrow_loads" in [finding.rule for finding in diagnosed(made).findings]


# --- situations in which a rule finds nothing


def _product(dtype: str, *, flop_count: float) -> RunRecord:
    """A matrix product without tensor cores."""
    case_id = f"matmul/M=4096,N=4096,K=4096/{dtype}/fwd"
    return record(
        PRODUCT,
        cases=(make_case(case_id, flop_count=flop_count, memory_bytes=4e7),),
        measurements=[timed(case_id, 2_000_000.0)],
        static_facts=(code(case_id, instructions={"global_load.128": 8}),),
        counters=(counted(case_id),),
    )


def _norm(
    busy_ns: float, *others: Measurement, waves: float = 0.0, tma_count: int = 0, **fields: Any
) -> RunRecord:
    return record(
        NORM,
        timed(NORM, busy_ns, **fields),
        *others,
        facts=(code(NORM, instructions={"global_load.32": 4, "tma": tma_count}),),
        counters=(counted(NORM, dram_bytes=4e8, waves_per_multiprocessor=waves),),
    )


WITHOUT_FINDING: dict[str, tuple[RunRecord, str]] = {
    "a product with little arithmetic for its bytes": (
        _product("bfloat16", flop_count=3.4e7),
        "no_tensor_cores",
    ),
    "a product in float32": (_product("float32", flop_count=8e10), "no_tensor_cores"),
    "narrow loads with TMA": (_norm(150_000.0, tma_count=2), "narrow_loads"),
    "whole waves of blocks": (_norm(400_000.0, waves=2.0), "waves"),
    "many waves of blocks": (_norm(400_000.0, waves=7.3), "waves"),
    "kernels that follow closely": (_norm(110_000.0, span_ns=120_000.0, kernel_count=4), "gaps"),
    "a few long kernels": (_norm(110_000.0, kernel_count=5), "many_kernels"),
    "two small kernels": (_norm(11_000.0, kernel_count=2), "many_kernels"),
    "an implementation that is as fast": (
        _norm(150_000.0, timed(NORM, 148_000.0, implementation="compile")),
        "faster_implementation",
    ),
    "an implementation with another timer": (
        _norm(150_000.0, make_measurement(NORM, implementation="torch", median_ns=10_000.0)),
        "faster_implementation",
    ),
    "a little above the roof": (on_cpu(4.8e6, flop_count=1e9, memory_bytes=1e6), "above_the_roof"),
}


@pytest.mark.parametrize("situation", WITHOUT_FINDING)
def test_a_rule_finds_nothing(situation: str) -> None:
    made, rule = WITHOUT_FINDING[situation]
    assert found(made, rule) is None


@pytest.mark.parametrize(
    ("dram_bytes", "is_found"),
    [(4.0e8, False), (4.7e8, False), (4.9e8, True)],
    ids=["equal", "+17%", "+22%"],
)
def test_traffic_is_excessive_from_a_fifth_above_the_cost_model(
    dram_bytes: float, is_found: bool
) -> None:
    made = record(NORM, timed(NORM, 140_000.0), counters=(counted(NORM, dram_bytes=dram_bytes),))
    assert (found(made, "excess_traffic") is not None) is is_found


@pytest.mark.parametrize(
    ("host_ns", "is_found"), [(73_000.0, False), (74_000.0, True), (200_000.0, True)]
)
def test_a_launch_is_host_bound_as_in_the_record(host_ns: float, is_found: bool) -> None:
    measured = timed(NORM, 110_000.0, span_ns=220_000.0, host_ns=host_ns)
    assert (
        (found(record(NORM, measured), "host_bound") is not None)
        == measured.is_host_bound
        == is_found
    )


def test_gaps_that_the_host_explains_are_not_launch_overhead() -> None:
    def pausing(host_ns: float | None) -> Limit:
        measured = timed(NORM, 110_000.0, span_ns=160_000.0, kernel_count=4, host_ns=host_ns)
        return diagnosed(record(NORM, measured)).limit

    assert pausing(60_000.0) is Limit.MEMORY
    assert pausing(5_000.0) is Limit.LAUNCH
    assert pausing(None) is Limit.LAUNCH


def test_an_estimate_stands_back_behind_counters() -> None:
    estimated = AILMENTS["not timed, estimated"]()
    slow = (timed(NORM, 400_000.0),)
    timed_only = estimated.model_copy(update={"measurements": slow, "counters": ()})
    with_counters = estimated.model_copy(
        update={"measurements": slow, "counters": (counted(NORM, dram_bytes=4e8),)}
    )

    estimate = found(timed_only, "estimated_limit")
    assert estimate is not None
    assert estimate.weight is Weight.HINT
    assert "790 µs of issue and 700 µs of memory" in str(estimate.evidence)
    assert found(with_counters, "estimated_limit") is None


# --- the evidence


def test_missing_counters_are_reported_on_a_gpu_only() -> None:
    def missing(ailment: str) -> str:
        return " ".join(map(str, diagnosed(without_counters(AILMENTS[ailment]())).missing))

    assert f"roofwatch ncu {NORM}" in missing("memory, with room")
    assert "ncu" not in missing("CPU, memory")


SPILLING = tuple(
    code(NORM, target, local_bytes=8, spill_store_count=2) for target in ("sm_80", "sm_90")
)


def test_machine_code_of_the_device_is_a_cause() -> None:
    finding = found(record(NORM, timed(NORM, 150_000.0), facts=SPILLING), "spills")

    assert finding is not None
    assert finding.weight is Weight.CAUSE
    assert finding.evidence.words == ("_kernel", "sm_90")


def test_machine_code_of_other_targets_is_a_hint() -> None:
    measured = record(
        NORM,
        timed(NORM, 150_000.0),
        facts=SPILLING,
        environment=gpu(compute_capability="8.9"),
    )

    finding = found(measured, "spills")

    assert finding is not None
    assert finding.weight is Weight.HINT
    assert finding.evidence.words == ("_kernel", "sm_80", "sm_90")


@pytest.mark.parametrize(
    ("kind", "capability", "target"),
    [
        ("cuda", "9.0", "sm_90"),
        ("cuda", "12.0", "sm_120"),
        ("hip", "9.4", "gfx942"),
        ("hip", "11.0", None),
    ],
)
def test_the_target_follows_from_the_compute_capability(
    kind: str, capability: str, target: str | None
) -> None:
    made = record(
        NORM,
        timed(NORM, 150_000.0),
        environment=gpu(device_kind=kind, compute_capability=capability),
    )
    assert evidence(made).target == target


def test_words_of_a_record_are_separate_from_the_template() -> None:
    hostile = "**_kernel** {0} <script>"
    finding = found(
        record(NORM, timed(NORM, 150_000.0), facts=(code(NORM, function=hostile, local_bytes=8),)),
        "spills",
    )
    assert finding is not None
    assert hostile in finding.evidence.words
    assert hostile not in finding.evidence.template
    assert hostile in str(finding.evidence)


# --- base and head

SUBJECT = (NORM, "triton")


def test_a_change_names_both_limits_with_the_new_findings() -> None:
    pairing = Pairing(AILMENTS["memory, near the roof"](), AILMENTS["latency, few warps"]())

    (change,) = judge_limits(pairing, [SUBJECT])

    evidence = change.evidence
    assert (evidence.base, evidence.head) == (Limit.MEMORY, Limit.LATENCY)
    assert str(change.detail).startswith("400 µs: neither memory nor compute is saturated")
    assert change.base is not None
    assert change.head is not None
    assert change.head < change.base
    assert evidence.news
    assert all(": " in str(news) for news in evidence.news)


def test_old_findings_are_no_news() -> None:
    spilling = AILMENTS["spills"]()

    (change,) = judge_limits(Pairing(spilling, spilling), [SUBJECT])

    assert change.evidence.base is change.evidence.head
    assert change.evidence.news == ()


def test_unknown_limits_are_no_change() -> None:
    unknown = AILMENTS["nothing is known"]()

    assert judge_limits(Pairing(unknown, unknown), [SUBJECT]) == []
