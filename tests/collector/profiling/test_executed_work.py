"""Work that kernels did, from real files of Nsight Compute and from its documented counters."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from roofwatch.collector.profiling.executed_work import executed_flop_count, local_bytes
from roofwatch.collector.profiling.ncu_metrics import counters_of, facts, normalised
from roofwatch.collector.profiling.profile_file import read_profile

DATA = Path(__file__).parents[2] / "data" / "profiles"
SIZE = 1024
NO_VECTOR_WORK = {
    f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum": 0.0
    for name in ("fadd", "fmul", "ffma")
}


def test_a_matrix_product_on_a_real_gpu_executed_what_it_needs_with_its_scaling() -> None:
    kernels = read_profile(DATA / "sgemm_metrics.csv")["kernels"]

    (basic, *_) = counters_of(kernels, "sgemm/n=1024/float32/fwd", "cuda")

    # a multiplication and an addition for each product, and one by alpha for each result
    assert basic.values["executed_flop_count"] == 2 * SIZE**3 + SIZE**2


@pytest.fixture(scope="module")
def sgemm_values() -> Mapping[str, float]:
    kernels = read_profile(DATA / "sgemm_profile.ncu-rep")["kernels"]
    (counters, *_) = counters_of(kernels, "sgemm/n=1024/float32/fwd", "cuda")
    return counters.values


def test_issue_slots_of_a_real_report_have_a_name(sgemm_values: Mapping[str, float]) -> None:
    assert sgemm_values["issue_slots_share"] == pytest.approx(0.06109, abs=1e-5)


def test_pipes_of_a_real_report_have_names(sgemm_values: Mapping[str, float]) -> None:
    assert sgemm_values["fma_pipe_share"] == pytest.approx(0.04063, abs=1e-5)
    assert sgemm_values["alu_pipe_share"] == pytest.approx(0.03707, abs=1e-5)
    assert sgemm_values["lsu_pipe_share"] == pytest.approx(0.11818, abs=1e-5)
    assert (sgemm_values["xu_pipe_share"], sgemm_values["tensor_pipe_share"]) == (0, 0)


def test_metrics_without_a_name_of_ours_stay_raw(sgemm_values: Mapping[str, float]) -> None:
    assert sgemm_values["sm__mio_inst_issued.avg.pct_of_peak_sustained_elapsed"] > 0


def test_a_report_without_counts_of_operations_has_no_flop_count(
    sgemm_values: Mapping[str, float],
) -> None:
    assert "executed_flop_count" not in sgemm_values


def test_counters_of_a_real_details_page_are_read() -> None:
    kernels = read_profile(DATA / "copy_blocked_details.csv")["kernels"]

    (counters, *_) = counters_of(kernels, "copy/n=1/int64/fwd", "cuda")

    assert counters.values["issue_slots_share"] == pytest.approx(0.0082)
    assert counters.values["executed_ipc"] == 0.03


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        # Hopper and Blackwell split by type of the result
        ({"bf16_dst_fp32": 8e9}, 8e9),
        ({"fp16_dst_fp16": 1e9, "fp16_dst_fp32": 2e9}, 3e9),
        # Ada has one counter
        ({"fp8": 4e9}, 4e9),
        # the same operations once more, in total and by sparsity
        ({"fp8": 6e9, "fp8_dst_fp16": 2e9, "fp8_dst_fp32": 4e9}, 6e9),
        (
            {
                "fp16_dst_fp32": 5e9,
                "fp16_dst_fp32_sparsity_off": 2e9,
                "fp16_dst_fp32_sparsity_on": 3e9,
            },
            5e9,
        ),
        ({"int8": 7e9, "bf16_dst_fp32": 1e9}, 8e9),
    ],
)
def test_operations_of_tensor_cores_are_counted_once(
    operations: dict[str, float], expected: float
) -> None:
    counts = {f"sm__ops_path_tensor_src_{name}.sum": count for name, count in operations.items()}

    executed = executed_flop_count(NO_VECTOR_WORK | counts, uses_tensor_cores=True)

    assert executed == expected


def test_operations_that_were_not_counted_leave_no_sum() -> None:
    assert executed_flop_count(NO_VECTOR_WORK, uses_tensor_cores=False) == 0
    assert executed_flop_count(NO_VECTOR_WORK, uses_tensor_cores=True) is None
    assert executed_flop_count({}, uses_tensor_cores=False) is None


def test_half_precision_counts_both_numbers_of_a_register() -> None:
    counts = NO_VECTOR_WORK | {
        "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum": 10.0,
        "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum": 1.0,
    }

    assert executed_flop_count(counts, uses_tensor_cores=False) == 42


def test_local_traffic_is_counted_in_sectors_of_32_bytes() -> None:
    sectors = "l1tex__t_sectors_pipe_lsu_mem_local_op_{}.sum"

    assert local_bytes({sectors.format("ld"): 3.0, sectors.format("st"): 2.0}) == 160
    assert local_bytes({}) is None


def test_each_kind_of_tensor_instruction_has_a_name() -> None:
    of_peak = ".avg.pct_of_peak_sustained_active"
    raw = {
        f"sm__inst_executed_pipe_tensor_op_gmma{of_peak}": (2.864288, "%"),
        f"sm__inst_executed_pipe_tensor_op_hmma{of_peak}": (1.432144, "%"),
    }

    named = facts({name: (normalised(value, unit),) for name, (value, unit) in raw.items()})

    assert named == {"tensor_gmma_pct": 2.864288, "tensor_hmma_pct": 1.432144}


def test_each_kind_of_memory_access_has_a_name() -> None:
    raw = {
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": (16.0, "sector"),
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": (12.0, ""),
    }

    named = facts({name: (normalised(value, unit),) for name, (value, unit) in raw.items()})

    assert named == {
        "load_sectors_per_request": 16.0,
        "shared_bank_conflict_count": 12.0,
    }
