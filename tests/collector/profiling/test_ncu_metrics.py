"""From real files of Nsight Compute to parts of a record."""

from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.profiling.ncu_metrics import Metric, counters_of, facts, stall_shares, stalls_of
from roofwatch.collector.profiling.profile_file import read_profile

DATA = Path(__file__).parents[2] / "data" / "profiles"
LONG = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
WAIT = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
SELECTED = "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"


def of(**values: float) -> dict[str, list[Metric]]:
    return {name: [Metric(value, "")] for name, value in values.items()}


def test_findings_are_sorted_by_estimated_speedup() -> None:
    (counters,) = counters_of(read_profile(DATA / "copy_blocked_details.csv")["kernels"], "copy/n=1/int64/fwd", "cuda")

    assert [
        (finding.rule, finding.estimated_speedup and round(finding.estimated_speedup, 4), finding.is_estimate_of_a_part)
        for finding in counters.findings
    ] == [
        ("UncoalescedGlobalAccess", 0.7414, False),
        ("MemoryCacheAccessPattern", 0.4514, False),
        ("MemoryCacheAccessPattern", 0.4296, False),
        ("CPIStall", 0.3816, False),
        ("CPIStall", 0.3816, False),
        ("HighPipeUtilization", 0.9886, True),
        ("IssueSlotUtilization", 0.3816, True),
        ("SOLBottleneck", None, False),
        ("MemoryL2Compression", None, False),
    ]


def test_stall_reasons_are_shares_of_a_warps_time() -> None:
    assert list(stall_shares(of(**{LONG: 6.0, WAIT: 1.0, SELECTED: 1.0})).items()) == [
        ("long_scoreboard", 0.75),
        ("wait", 0.125),
    ]
    values = {"stall_wait_share": 0.1, "stall_barrier_share": 0.3, "dram_throughput_share": 0.9}
    assert list(stalls_of(values).items()) == [("barrier", 0.3), ("wait", 0.1)]


def test_stall_reasons_come_from_samples_without_counters() -> None:
    samples: dict[str, Any] = {
        "smsp__pcsamp_warps_issue_stalled_barrier": 30.0,
        "smsp__pcsamp_warps_issue_stalled_barrier_not_issued": 29.0,
        "smsp__pcsamp_warps_issue_stalled_selected": 10.0,
    }
    assert stall_shares(of(**samples)) == {"barrier": 0.75}
    assert stall_shares(of(**samples, **{WAIT: 2.0})) == {"wait": 1.0}
    assert stall_shares(of(**{WAIT: 0.0})) == {}


def test_dram_bytes_are_reads_plus_writes_unless_reported() -> None:
    both = {"dram__bytes_read.sum": 300.0, "dram__bytes_write.sum": 100.0}
    assert facts(of(**both))["dram_bytes"] == 400.0
    assert facts(of(**both, **{"dram__bytes.sum": 410.0}))["dram_bytes"] == 410.0
    assert "dram_bytes" not in facts(of(**{"dram__bytes_read.sum": 300.0}))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed", "Blackwell"),
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "Ampere and Hopper"),
        ("sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active", "Volta and Turing"),
    ],
)
def test_the_tensor_metric_of_each_architecture_is_read(name: str, architecture: str) -> None:
    assert facts({name: [Metric(61.0, "%")]})["tensor_pipe_pct"] == 61.0, architecture
