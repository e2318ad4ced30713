"""What binds a kernel: each rule on a record in which exactly that is the case, and on records in which it is not."""

from pathlib import Path

import pytest

from roofwatch.ci.diagnosis.diagnose import RULES, bottleneck_changes, is_empty, is_wrong
from roofwatch.ci.diagnosis.evidence import Limit
from roofwatch.ci.diagnosis.finding import Weight
from roofwatch.ci.diagnosis.record_evidence import RecordEvidence, subjects_of
from roofwatch.collector.record.record import RunRecord
from roofwatch.profiles.diagnosing import Diagnosed, to_lines
from tests.builders import make_case, make_measurement, make_record
from tests.ci.ailments import (
    AILMENTS,
    CHAIN,
    EMPTY,
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

LIMITS = {
    "memory, near the roof": Limit.MEMORY,
    "memory, with room": Limit.MEMORY,
    "memory, twice the traffic": Limit.MEMORY,
    "cache": Limit.CACHE,
    "compute, near the roof": Limit.COMPUTE,
    "compute, no tensor cores": Limit.COMPUTE,
    "latency, few warps": Limit.LATENCY,
    "latency, too few blocks": Limit.LATENCY,
    "latency, a half empty round": Limit.LATENCY,
    "launch, pauses": Limit.LAUNCH,
    "launch, nothing to do": Limit.LAUNCH,
    "launch, many small kernels": Limit.LAUNCH,
    "host": Limit.HOST,
    "links": Limit.LINKS,
    "not timed": Limit.UNDETERMINED,
    "nothing is known": Limit.UNDETERMINED,
    "CPU, memory": Limit.MEMORY,
    "CPU, cache": Limit.CACHE,
    "CPU, its data misses the cache": Limit.MEMORY,
    "CPU, arithmetic": Limit.COMPUTE,
    "CPU, operators one after another": Limit.UNDETERMINED,
    "CPU, calls": Limit.LAUNCH,
}
RULE_OF = {
    "memory, twice the traffic": "excess_traffic",
    "compute, no tensor cores": "no_tensor_cores",
    "latency, few warps": "low_occupancy",
    "latency, too few blocks": "waves",
    "latency, a half empty round": "waves",
    "launch, pauses": "gaps",
    "launch, nothing to do": "small_launches",
    "launch, many small kernels": "many_kernels",
    "host": "host_bound",
    "links": "links",
    "spills": "spills",
    "narrow loads": "narrow_loads",
    "no room": "no_room",
    "does not compile": "failed_to_compile",
    "wrong": "failed",
    "throttled": "throttled",
    "a ceiling above the datasheet": "unbelievable_ceilings",
    "varying kernels": "varying_kernels",
    "another is faster": "faster_implementation",
    "autotuning, a close second": "autotuning",
    "autotuning, not the fastest": "autotuning",
    "the profiler's own rule": "profiler_says",
    "CPU, above the roof": "above_the_roof",
    "CPU, operators one after another": "undetermined",
}
OF_THE_LIMIT = {"near_roof", "latency", "small_launches"}
"""They name the limit, so they come with many an ailment."""


@pytest.mark.parametrize(("ailment", "limit"), LIMITS.items(), ids=lambda value: str(value))
def test_the_limit_that_binds_is_named(ailment: str, limit: Limit) -> None:
    assert diagnosed(AILMENTS[ailment]()).limit is limit


@pytest.mark.parametrize(("ailment", "rule"), RULE_OF.items(), ids=lambda value: str(value))
def test_a_rule_sees_its_own_ailment_and_no_other_rule_does(ailment: str, rule: str) -> None:
    seen = {finding.rule for finding in diagnosed(AILMENTS[ailment]()).findings}
    assert rule in seen
    assert seen - OF_THE_LIMIT <= {rule}


def test_a_kernel_that_nothing_is_wrong_with_is_told_so_and_nothing_else() -> None:
    for ailment in ("memory, near the roof", "compute, near the roof", "CPU, memory", "CPU, cache"):
        [finding] = diagnosed(AILMENTS[ailment]()).findings
        assert (finding.rule, finding.weight) == ("near_roof", Weight.BINDING)
        assert "little can be gained" in finding.title


def test_every_rule_has_an_ailment() -> None:
    assert {rule.name for rule in RULES} == set(RULE_OF.values()) | OF_THE_LIMIT


def test_the_sentences_are_the_golden_ones() -> None:
    lines = []
    for ailment, make in AILMENTS.items():
        made = make()
        lines += [f"== {ailment}", *to_lines(Diagnosed(evidence(made), diagnosed(made))), ""]
    text = "\n".join(lines)
    assert text == GOLDEN.read_text(), "read what changed; if it is better, write it to the golden file"


# --- how much there is to gain


def test_a_speedup_is_bounded_by_the_roof() -> None:
    finding = found(record(NORM, timed(NORM, 150_000.0)), "near_roof")
    assert finding is not None
    assert finding.most_speedup == pytest.approx(1.5)


def test_a_speedup_is_bounded_by_what_a_launch_costs_where_the_work_is_next_to_nothing() -> None:
    tiny = record(CHAIN, timed(CHAIN, 30_000.0, kernel_count=12), timed(EMPTY, 2_500.0))
    finding = found(tiny, "many_kernels")
    assert finding is not None
    assert finding.most_speedup == pytest.approx(12.0)


def test_what_there_is_more_to_gain_from_comes_first_and_hints_come_last() -> None:
    made = record(
        NORM,
        timed(NORM, 240_000.0),
        timed(NORM, 200_000.0, implementation="compile"),
        facts=(code(NORM, instructions={"global_load.16": 8}),),
        counters=(counted(NORM, dram_bytes=9e8),),
    )
    rules = [finding.rule for finding in diagnosed(made).findings]
    assert rules == ["near_roof", "excess_traffic", "faster_implementation", "narrow_loads"]


# --- where a rule keeps quiet


def _product(case_id: str, *, flop_count: float) -> RunRecord:
    """A matrix product without tensor cores."""
    return record(
        PRODUCT,
        cases=(make_case(case_id, flop_count=flop_count, memory_bytes=4e7),),
        measurements=[timed(case_id, 2_000_000.0)],
        static_facts=(code(case_id, instructions={"global_load.128": 8}),),
        counters=(counted(case_id),),
    )


def _in_rounds(count: float) -> RunRecord:
    counters = (counted(NORM, dram_bytes=4e8, waves_per_multiprocessor=count),)
    return record(NORM, timed(NORM, 400_000.0), counters=counters)


NARROW = {"global_load.32": 4}
NO_TENSOR_CORES = {"global_load.128": 8}
QUIET: dict[str, tuple[RunRecord, str]] = {
    "a product with little arithmetic for its bytes": (
        _product("matmul/M=1,N=4096,K=4096/bfloat16/fwd", flop_count=3.4e7),
        "no_tensor_cores",
    ),
    "a product in float32": (_product("matmul/M=4096,N=4096,K=4096/float32/fwd", flop_count=8e10), "no_tensor_cores"),
    "tensor cores in one of several kernels": (
        record(
            PRODUCT,
            timed(PRODUCT, 300_000.0),
            facts=(code(PRODUCT), code(PRODUCT, function="_prepare", instructions=NO_TENSOR_CORES)),
        ),
        "no_tensor_cores",
    ),
    "few warps that keep the tensor cores busy": (
        record(
            PRODUCT,
            timed(PRODUCT, 115_000.0),
            facts=(code(PRODUCT, theoretical_occupancy=0.125, occupancy_limits=("shared memory",)),),
        ),
        "low_occupancy",
    ),
    "narrow loads of a few bytes": (
        record(EMPTY, timed(EMPTY, 2_100.0), facts=(code(EMPTY, instructions=NARROW),)),
        "narrow_loads",
    ),
    "narrow loads beside TMA": (
        record(NORM, timed(NORM, 150_000.0), facts=(code(NORM, instructions=NARROW | {"tma": 2}),)),
        "narrow_loads",
    ),
    "whole rounds of blocks": (_in_rounds(2.0), "waves"),
    "many rounds of blocks": (_in_rounds(7.3), "waves"),
    "a host that keeps ahead": (record(NORM, timed(NORM, 110_000.0, host_ns=73_000.0)), "host_bound"),
    "kernels that follow closely": (
        record(NORM, timed(NORM, 110_000.0, span_ns=120_000.0, kernel_count=4)),
        "gaps",
    ),
    "a few long kernels": (record(NORM, timed(NORM, 110_000.0, kernel_count=5)), "many_kernels"),
    "two small kernels": (record(NORM, timed(NORM, 11_000.0, kernel_count=2)), "many_kernels"),
    "a steady clock": (record(NORM, timed(NORM, 110_000.0)), "throttled"),
    "another implementation that is as fast": (
        record(NORM, timed(NORM, 150_000.0), timed(NORM, 148_000.0, implementation="compile")),
        "faster_implementation",
    ),
    "another implementation that was timed otherwise": (
        record(NORM, timed(NORM, 150_000.0), make_measurement(NORM, implementation="eager", median_ns=10_000.0)),
        "faster_implementation",
    ),
    "a little above the roof": (on_cpu(4.8e6, flop_count=1e9, memory_bytes=1e6), "above_the_roof"),
}


@pytest.mark.parametrize("situation", QUIET)
def test_a_rule_keeps_quiet(situation: str) -> None:
    made, rule = QUIET[situation]
    assert found(made, rule) is None


@pytest.mark.parametrize(
    ("dram_bytes", "is_told"), [(4.0e8, False), (4.7e8, False), (4.9e8, True)], ids=["equal", "+17%", "+22%"]
)
def test_traffic_is_excessive_from_a_fifth_above_the_model_on(dram_bytes: float, is_told: bool) -> None:
    made = record(NORM, timed(NORM, 140_000.0), counters=(counted(NORM, dram_bytes=dram_bytes),))
    assert (found(made, "excess_traffic") is not None) is is_told


def test_excess_traffic_of_what_memory_does_not_bind_promises_nothing() -> None:
    made = record(PRODUCT, timed(PRODUCT, 110_000.0), counters=(counted(PRODUCT, dram_bytes=8e7),))
    finding = found(made, "excess_traffic")
    assert finding is not None
    assert finding.most_speedup is None


def test_bytes_that_were_counted_of_some_kernels_alone_are_not_those_of_the_call() -> None:
    parts = (counted(NORM, dram_bytes=8e8), counted(NORM).model_copy(update={"launch_index": 1}))
    assert found(record(NORM, timed(NORM, 220_000.0), counters=parts), "excess_traffic") is None


def test_a_host_binds_in_a_diagnosis_where_the_record_calls_the_launch_host_bound() -> None:
    for host_ns in (73_000.0, 74_000.0, 109_000.0, 200_000.0):
        measured = timed(NORM, 110_000.0, span_ns=220_000.0, host_ns=host_ns)
        finding = found(record(NORM, measured), "host_bound")
        assert (finding is not None) == measured.is_host_bound == (host_ns > 110_000 / 1.5)
    close = found(record(NORM, timed(NORM, 110_000.0, host_ns=88_000.0)), "host_bound")
    assert close is not None
    assert "less than 80% of its time would wait for the host" in str(close.evidence)


def test_pauses_of_an_idle_device_that_its_host_explains_are_not_blamed_on_launches() -> None:
    def pausing(host_ns: float | None) -> Limit:
        measured = timed(NORM, 110_000.0, span_ns=160_000.0, kernel_count=4, host_ns=host_ns)
        return diagnosed(record(NORM, measured)).limit

    assert pausing(60_000.0) is Limit.MEMORY, "in a loop the host keeps ahead, and there are none"
    assert pausing(5_000.0) is Limit.LAUNCH
    assert pausing(None) is Limit.LAUNCH


# --- what is known, and what is not


def test_without_counters_it_says_how_to_get_them_on_a_gpu_alone() -> None:
    def missing(ailment: str) -> str:
        return " ".join(str(each.how) for each in diagnosed(without_counters(AILMENTS[ailment]())).missing)

    assert f"roofwatch ncu {NORM}" in missing("memory, with room")
    assert "ncu" not in missing("CPU, memory")


def test_the_machine_code_of_other_devices_is_a_hint_and_that_of_its_own_a_cause() -> None:
    spilling = [code(NORM, target, local_bytes=8, spill_store_count=2) for target in ("sm_80", "sm_90")]
    own = found(record(NORM, timed(NORM, 150_000.0), facts=tuple(spilling)), "spills")
    others = found(
        record(NORM, timed(NORM, 150_000.0), facts=tuple(spilling), environment=gpu(compute_capability="8.9")), "spills"
    )
    assert own is not None
    assert others is not None
    assert (own.weight, others.weight) == (Weight.CAUSE, Weight.HINT)
    assert own.evidence.words == ("_kernel", "sm_90")
    assert others.evidence.words == ("_kernel", "sm_80", "sm_90")


@pytest.mark.parametrize(
    ("kind", "capability", "target"),
    [("cuda", "9.0", "sm_90"), ("cuda", "12.0", "sm_120"), ("hip", "9.4", "gfx942"), ("hip", "11.0", None)],
)
def test_the_devices_own_target_is_known_from_its_capability(kind: str, capability: str, target: str | None) -> None:
    made = record(NORM, timed(NORM, 150_000.0), environment=gpu(device_kind=kind, compute_capability=capability))
    assert evidence(made).target == target


def test_names_of_a_record_are_kept_apart_from_the_sentences() -> None:
    hostile = "**_kernel** {0} <script>"
    finding = found(
        record(NORM, timed(NORM, 150_000.0), facts=(code(NORM, function=hostile, local_bytes=8),)), "spills"
    )
    assert finding is not None
    assert hostile in finding.evidence.words
    assert hostile not in finding.evidence.template
    assert hostile in str(finding.evidence)


def test_a_stall_that_is_not_known_is_not_repeated() -> None:
    strange = counted(NORM).model_copy(update={"values": {"stall_<b>_share": 0.9}})
    finding = found(record(NORM, timed(NORM, 400_000.0), counters=(strange,)), "latency")
    assert finding is not None
    assert "<b>" not in str(finding.evidence)


def test_what_fails_is_wrong_and_what_nothing_is_known_of_is_empty() -> None:
    wrong = {name for name, make in AILMENTS.items() if is_wrong(diagnosed(make()))}
    empty = {name for name, make in AILMENTS.items() if is_empty(diagnosed(make()))}
    assert wrong == {"wrong", "no room", "does not compile"}
    assert empty == {"nothing is known"}


def test_every_result_of_a_record_can_be_diagnosed() -> None:
    made = make_record(measurements=[make_measurement(), make_measurement(implementation="triton")])
    assert [implementation for _, implementation in subjects_of(made)] == ["eager", "triton"]
    with pytest.raises(KeyError):
        RecordEvidence(made).of("no/such=1/case/fwd", "eager")


# --- two ends of a change

SUBJECT = (NORM, "triton")


def test_the_limit_of_both_ends_is_named_and_what_the_head_alone_shows() -> None:
    (change,) = bottleneck_changes(AILMENTS["memory, near the roof"](), AILMENTS["latency, few warps"](), [SUBJECT])

    assert (change.base, change.head) == (Limit.MEMORY, Limit.LATENCY)
    assert str(change.headline).startswith("400 µs: neither memory nor arithmetic is busy")
    assert change.news
    assert all(": " in str(news) for news in change.news)


def test_what_was_there_before_is_no_news() -> None:
    record = AILMENTS["spills"]()

    (change,) = bottleneck_changes(record, record, [SUBJECT])

    assert (change.base, change.news) == (change.head, ())


def test_of_what_nothing_is_known_nothing_is_told() -> None:
    record = AILMENTS["nothing is known"]()

    assert bottleneck_changes(record, record, [SUBJECT]) == ()
