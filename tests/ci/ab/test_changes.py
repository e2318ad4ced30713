"""Changes of memory, host time, accuracy and counters between two records, and what is shown side
by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from roofwatch.ci.ab.changes import compare_counters, judge_accuracy
from roofwatch.ci.ab.side_by_side import SideBySide, code_diff, find_best, side_by_side
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.ci.static.comparison import moved_facts_of
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Autotuning, CacheState, Measurement, MemoryUse, Timer
from roofwatch.model.results import Accuracy
from roofwatch.model.verdict import Reason, Verdict, exit_code
from tests.builders import (
    CASE_ID,
    make_accuracy,
    make_blocks,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
)
from tests.ci.values import QUIET, SOFTMAX, make_counters, make_records, make_timed

MIB = 2**20


def taking(peak_bytes: int) -> Measurement:
    memory = MemoryUse(
        peak_allocated_bytes=peak_bytes, peak_reserved_bytes=4 * MIB, allocation_count=1
    )
    return make_timed(SOFTMAX, memory=memory, timer=Timer.CUPTI)


def launched_in(host_ns: float, levels: Sequence[float] = QUIET) -> Measurement:
    """The host takes so long, block by block in noise; the device as long as ever."""
    timed = make_timed(SOFTMAX, timer=Timer.CUPTI)
    blocks = [
        block.model_copy(update={"host_ns": host_ns * level})
        for block, level in zip(timed.blocks, levels, strict=True)
    ]
    return timed.model_copy(update={"blocks": tuple(blocks)})


def judge(base: Measurement, head: Measurement, **fields: object) -> PullRequestJudgement:
    return judge_pull_request(*make_records([base], [head], **fields))  # type: ignore[arg-type]  # as it is given


def only(judgement: PullRequestJudgement) -> Change[None]:
    (change,) = judgement.secondary_changes
    return change


@pytest.mark.parametrize("is_paired", [True, False])
def test_more_memory_is_a_regression_even_without_a_pair(*, is_paired: bool) -> None:
    judgement = judge(taking(MIB), taking(2 * MIB), is_paired=is_paired)

    change = only(judgement)
    assert (change.verdict, change.reason, change.relative_change) == (
        Verdict.REGRESSED,
        Reason.MEMORY_CHANGED,
        1.0,
    )
    assert change.in_words == "peak allocated memory 1 MiB → 2 MiB (+100.0%)"
    assert judgement.counts["regressed"] == 1
    assert exit_code(judgement.verdict) == 1


def test_less_memory_is_an_improvement_beyond_five_percent() -> None:
    improved = judge(taking(2 * MIB), taking(MIB))

    assert only(improved).verdict is improved.verdict is Verdict.IMPROVED
    assert judge(taking(100 * MIB), taking(104 * MIB)).secondary_changes == ()
    assert only(judge(taking(100 * MIB), taking(106 * MIB))).verdict is Verdict.REGRESSED


def test_memory_of_another_torch_version_decides_nothing() -> None:
    judgement = judge(
        taking(MIB),
        taking(2 * MIB),
        head_fields={"environment": make_environment(torch_version="2.14.0")},
    )

    assert (only(judgement).verdict, only(judgement).reason) == (
        Verdict.UNCHANGED,
        Reason.TOOLCHAIN_CHANGED,
    )
    assert exit_code(judgement.verdict) == 0


def test_memory_of_another_device_is_not_compared() -> None:
    other = {"environment": make_environment(device_name="Other CPU")}
    assert judge(taking(MIB), taking(2 * MIB), head_fields=other).secondary_changes == ()


def test_memory_of_another_cache_state_is_not_compared() -> None:
    rotated = taking(2 * MIB).model_copy(update={"cache": CacheState.ROTATED})
    assert judge(taking(MIB), rotated).secondary_changes == ()


def test_memory_of_a_wrong_result_is_not_compared() -> None:
    wrong = make_accuracy(SOFTMAX, outcome=Outcome.INCORRECT)
    records = make_records([taking(MIB)], [taking(2 * MIB), wrong])
    assert judge_pull_request(*records).secondary_changes == ()


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.5, Verdict.REGRESSED), (1 / 1.5, Verdict.IMPROVED), (1.1, None), (1.0, None)],
)
def test_host_time_is_compared_block_by_block(factor: float, verdict: Verdict | None) -> None:
    judgement = judge(launched_in(5_000), launched_in(5_000 * factor, QUIET[::-1]))

    assert [change.verdict for change in judgement.secondary_changes] == (
        [] if verdict is None else [verdict]
    )
    (case,) = judgement.cases
    assert (case.verdict, case.reason) == (Verdict.UNCHANGED, Reason.WITHIN_THRESHOLD)
    if verdict is not None:
        change = only(judgement)
        assert change.reason is Reason.HOST_CHANGED
        assert change.relative_interval is not None
        assert change.relative_interval[0] < factor - 1 < change.relative_interval[1]


def accuracy_changes(base: Accuracy, head: Accuracy) -> list[tuple[Reason, str]]:
    found = judge_accuracy(Pairing(*make_records([base], [head])))
    return [(change.reason, change.subject.part) for change in found]


@pytest.mark.parametrize(
    ("base", "head", "reason"),
    [
        (1e-6, 1e-6, None),
        (1e-6, 1.4e-6, None),
        (1e-6, 1.6e-6, Reason.LESS_ACCURATE),
        (1.6e-6, 1e-6, Reason.MORE_ACCURATE),
        (0.0, 1e-6, Reason.LESS_ACCURATE),
        (1e-6, 0.0, Reason.MORE_ACCURATE),
        (0.0, 0.0, None),
        (1e-9, 1e-7, None),
        (1e-9, 2e-7, Reason.LESS_ACCURATE),
    ],
)
def test_an_error_that_grew_by_half_is_reported_unless_it_is_rounding(
    base: float, head: float, reason: Reason | None
) -> None:
    found = accuracy_changes(make_accuracy(rmse_ratio=base), make_accuracy(rmse_ratio=head))

    assert found == ([] if reason is None else [(reason, "out")])


def counter_changes(base: dict[str, float], head: dict[str, float]) -> list[tuple[str, float]]:
    found = compare_counters([make_counters(values=base)], [make_counters(values=head)])
    return [(change.metric, round(change.relative_change, 4)) for change in found]


def test_counters_are_sorted_by_log_ratio() -> None:
    base = {
        "dram_bytes": 100.0,
        "duration_ns": 100.0,
        "registers_per_thread": 64.0,
        "l2_bytes": 1_000.0,
    }
    head = {
        "dram_bytes": 150.0,
        "duration_ns": 40.0,
        "registers_per_thread": 128.0,
        "l2_bytes": 1_010.0,
    }

    assert counter_changes(base, head) == [
        ("duration_ns", -0.6),
        ("registers_per_thread", 1.0),
        ("dram_bytes", 0.5),
    ]


def test_kernels_of_one_name_are_paired_in_their_order() -> None:
    base = [
        make_counters(launch_index=at, values={"duration_ns": time_ns})
        for at, time_ns in ((0, 10.0), (1, 20.0))
    ]
    between = make_counters(function="_other", launch_index=1, values={"duration_ns": 99.0})
    head = [base[0], between, make_counters(launch_index=2, values={"duration_ns": 30.0})]

    (change,) = compare_counters(base, head)

    assert (change.subject.launch_index, change.base, change.head) == (2, 20.0, 30.0)


def compared(base: dict[str, Any], head: dict[str, Any]) -> SideBySide:
    return side_by_side(make_record(0, **base), make_record(1, **head), CASE_ID, "torch")


def test_only_changed_machine_code_of_the_implementation_is_listed() -> None:
    before = [
        make_static_facts(implementation="torch", target=target) for target in ("sm_80", "sm_90")
    ]
    after = [
        before[0],
        make_static_facts(implementation="torch", target="sm_90", code="another", registers=64),
    ]
    other = make_static_facts(implementation="triton", code="of another implementation")
    found = compared({"static_facts": before}, {"static_facts": [*after, other]})
    assert [(change.subject.target, [*moved_facts_of(change)]) for change in found.code] == [
        ("sm_90", ["registers"])
    ]
    assert found.unchanged_code_count == 1


def test_differences_are_listed_the_toolchain_first() -> None:
    def tuned(block: int) -> object:
        return make_measurement(autotuning=(Autotuning(function="k", chosen={"BLOCK": block}),))

    newer = make_environment(os="Linux 6.9", triton_version="3.8.0", cuda_version="13.1")
    found = compared(
        {"measurements": [tuned(64)]}, {"measurements": [tuned(128)], "environment": newer}
    )
    assert [str(choice) for choice in found.choices] == [
        "the autotuner of k chose BLOCK=128 instead of BLOCK=64"
    ]
    assert [(one.name, one.values[1], one.may_move_times) for one in found.environment] == [
        ("triton version", "3.8.0", True),
        ("cuda version", "13.1", True),
        ("os", "Linux 6.9", False),
    ]


def test_a_diff_of_disassemblies_is_shortened() -> None:
    before = "\n".join(f"line {number}" for number in range(100))
    diff, more = code_diff(before, before.replace("line 50", "another"), line_limit=5)
    whole, nothing = code_diff(before, before.replace("line 50", "another"), line_limit=1_000)
    assert diff == "\n".join(whole.splitlines()[:5])
    assert more == len(whole.splitlines()) - 5
    assert nothing == 0
    assert "-line 50" in whole
    assert "+another" in whole
    assert code_diff(before, before, line_limit=5) == ("", 0)


def timed(implementation: str, *medians_ns: float, **fields: Any) -> Measurement:
    return make_measurement(implementation=implementation, blocks=make_blocks(medians_ns), **fields)


def test_the_fastest_implementation_is_best() -> None:
    (best,) = find_best(
        [
            timed("torch", *[1_500.0] * 8),
            timed("triton", *[1_000.0, 1_002.0] * 4),
            timed("compile", *[1_200.0, 1_203.0] * 4),
        ]
    )

    assert (best.implementation, best.runner_up, best.median_ns) == ("triton", "compile", 1_001.0)
    assert best.comparison is not None
    assert best.comparison.verdict is Verdict.IMPROVED
    assert best.comparison.speedup > 1.19


def test_another_timer_is_no_runner_up() -> None:
    (best,) = find_best([timed("torch", 1_000.0), timed("triton", 900.0, timer=Timer.CUPTI)])

    assert (best.implementation, best.runner_up, best.comparison) == ("triton", None, None)
