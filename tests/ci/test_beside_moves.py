"""What a launch takes beside its time on the device, base against head."""

from collections.abc import Sequence

import pytest

from roofwatch import tables
from roofwatch.ci.ab.changes import Change
from roofwatch.ci.gate import exit_code
from roofwatch.ci.github.acceptance import findings_of
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.interchange import to_junit, to_sarif
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState, Measurement, MemoryUse, Timer
from roofwatch.db.values import Verdict
from tests.builders import make_accuracy, make_environment
from tests.ci.values import QUIET, SOFTMAX, make_records, make_timed

MIB = 2**20


def taking(peak_bytes: int) -> Measurement:
    memory = MemoryUse(peak_allocated_bytes=peak_bytes, peak_reserved_bytes=4 * MIB, allocation_count=1)
    return make_timed(SOFTMAX, memory=memory, timer=Timer.CUPTI)


def launched_in(host_ns: float, levels: Sequence[float] = QUIET, case_id: str = SOFTMAX) -> Measurement:
    """The host takes so long, block by block in noise; the device as long as ever."""
    timed = make_timed(case_id, timer=Timer.CUPTI)
    blocks = [
        block.model_copy(update={"host_ns": host_ns * level}) for block, level in zip(timed.blocks, levels, strict=True)
    ]
    return timed.model_copy(update={"blocks": tuple(blocks)})


def judge(base: Measurement, head: Measurement, **fields: object) -> PullRequestJudgement:
    return judge_pull_request(*make_records([base], [head], **fields))  # type: ignore[arg-type]  # as it is given


def only(judgement: PullRequestJudgement) -> Change:
    (move,) = judgement.secondary_changes
    return move


@pytest.mark.parametrize("is_paired", [True, False])
def test_a_launch_that_takes_more_memory_is_a_regression_with_or_without_a_pair(*, is_paired: bool) -> None:
    judgement = judge(taking(MIB), taking(2 * MIB), is_paired=is_paired)

    move = only(judgement)
    assert (move.verdict, move.reason, move.relative_change) == (Verdict.REGRESSED, Reason.MEMORY_MOVED, 1.0)
    assert move.in_words == "peak allocated memory 1 MiB → 2 MiB (+100.0%)"
    assert judgement.counts["regressed"] == 1
    assert exit_code(judgement) == 1


def test_less_memory_is_an_improvement_and_less_than_a_twentieth_is_nothing() -> None:
    improved = judge(taking(2 * MIB), taking(MIB))

    assert only(improved).verdict is improved.verdict is Verdict.IMPROVED
    assert judge(taking(100 * MIB), taking(104 * MIB)).secondary_changes == ()
    assert only(judge(taking(100 * MIB), taking(106 * MIB))).verdict is Verdict.REGRESSED


def test_memory_from_nothing_is_told_from_the_second_block_on() -> None:
    """torch hands out 512 bytes at least."""
    assert judge(taking(0), taking(512)).secondary_changes == ()
    assert only(judge(taking(0), taking(1_024))).in_words == "peak allocated memory 0 B → 1 KiB"


def test_what_another_torch_counts_is_shown_and_decides_nothing() -> None:
    judgement = judge(
        taking(MIB), taking(2 * MIB), head_fields={"environment": make_environment(torch_version="2.14.0")}
    )

    assert (only(judgement).verdict, only(judgement).reason) == (Verdict.UNCHANGED, Reason.TOOLCHAIN_MOVED)
    assert exit_code(judgement) == 0


def test_memory_of_another_device_another_cache_state_or_a_wrong_result_is_not_compared() -> None:
    other = {"environment": make_environment(device_name="Other CPU")}
    assert judge(taking(MIB), taking(2 * MIB), head_fields=other).secondary_changes == ()

    rotated = taking(2 * MIB).model_copy(update={"cache": CacheState.ROTATED})
    assert judge(taking(MIB), rotated).secondary_changes == ()

    wrong = make_accuracy(SOFTMAX, outcome=Outcome.INCORRECT)
    records = make_records([taking(MIB)], [taking(2 * MIB), wrong])
    assert judge_pull_request(*records).secondary_changes == ()


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.5, Verdict.REGRESSED), (1 / 1.5, Verdict.IMPROVED), (1.1, None), (1.0, None)]
)
def test_the_hosts_time_is_judged_by_the_blocks_of_a_pair(factor: float, verdict: Verdict | None) -> None:
    judgement = judge(launched_in(5_000), launched_in(5_000 * factor, QUIET[::-1]))

    assert [move.verdict for move in judgement.secondary_changes] == ([] if verdict is None else [verdict])
    (case,) = judgement.cases
    assert (case.verdict, case.reason) == (Verdict.UNCHANGED, Reason.WITHIN_THRESHOLD)
    if verdict is not None:
        move = only(judgement)
        assert move.reason is Reason.HOST_MOVED
        assert move.relative_interval is not None
        assert move.relative_interval[0] < factor - 1 < move.relative_interval[1]


def test_hosts_of_two_jobs_or_in_noise_or_half_known_say_nothing() -> None:
    assert judge(launched_in(5_000), launched_in(9_000), is_paired=False).secondary_changes == ()

    loud = (1.0, 2.3, 0.6, 1.9, 0.5, 2.2)
    assert judge(launched_in(5_000, loud), launched_in(7_000, loud[::-1])).secondary_changes == ()

    half = launched_in(9_000)
    cut = half.blocks[0].model_copy(update={"host_ns": None})
    half = half.model_copy(update={"blocks": (cut, *half.blocks[1:])})
    assert judge(launched_in(5_000), half).secondary_changes == ()


def test_reports_say_that_it_is_the_host_and_not_the_kernel() -> None:
    judgement = judge(launched_in(5_000), launched_in(8_000, QUIET[::-1]))

    comment = to_markdown(judgement)
    assert "### roofwatch: regressed\n" in comment
    assert "memory and host of a launch 1 regressed" in comment
    assert "| **regressed** | host time of a launch |" in comment
    assert "#### Time" not in comment
    assert "/roofwatch accept" in comment
    assert (
        '<failure message="regressed: the host\'s time of a launch moved, not the kernel on the device">'
        in to_junit(judgement)
    )
    assert '"ruleId": "host_moved"' in to_sarif(judgement, version="1")
    assert [str(table.title) for table in tables.judgement(judgement)] == ["memory and host of a launch"]


def test_who_accepts_a_regression_of_memory_has_accepted_no_other() -> None:
    memory, host = judge(taking(MIB), taking(2 * MIB)), judge(launched_in(5_000), launched_in(8_000))

    accepted, other = findings_of(memory, "a" * 40), findings_of(host, "a" * 40)

    assert accepted is not None
    assert other is not None
    assert accepted.digest != other.digest
    again = findings_of(judge(taking(MIB), taking(3 * MIB)), "b" * 40)
    assert again is not None
    assert again.digest == accepted.digest
