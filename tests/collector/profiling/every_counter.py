"""What a report with every counter holds; `made_report` writes it."""

from pathlib import Path

EVERY_COUNTER = Path(__file__).parents[2] / "data" / "ncu" / "every_counter.ncu-rep"
LOCAL_LOADS = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
LOCAL_STORES = "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"
EXPECTED = {
    "issue_slots_share": 0.61,
    "executed_ipc": 2.44,
    "fma_pipe_share": 0.12,
    "alu_pipe_share": 0.13,
    "fp64_pipe_share": 0.01,
    "xu_pipe_share": 0.14,
    "lsu_pipe_share": 0.15,
    "tensor_pipe_share": 0.70,
    "tensor_hmma_share": 0.03,
    "tensor_gmma_share": 0.05,
    "tensor_imma_share": 0.07,
    "tensor_dmma_share": 0.09,
    "load_sectors_per_request": 16.0,
    "store_sectors_per_request": 4.0,
    "shared_bank_conflict_count": 4_096.0,
    # 128 sectors
    "local_bytes": 4_096.0,
    # two of each FFMA, and the tensor cores'
    "executed_flop_count": 9e9,
}
"""Values by our name."""
EXPECTED_RAW = {
    LOCAL_LOADS: 96.0,
    LOCAL_STORES: 32.0,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 5e8,
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 8e9,
}
"""Values that are kept under Nsight Compute's names."""
SHOWN = {
    "issue slots": "61.0%",
    "executed ipc": "2.44",
    "fma pipe": "12.0%",
    "alu pipe": "13.0%",
    "fp64 pipe": "1.0%",
    "xu pipe": "14.0%",
    "lsu pipe": "15.0%",
    "tensor pipe": "70.0%",
    "tensor hmma": "3.0%",
    "tensor gmma": "5.0%",
    "tensor imma": "7.0%",
    "tensor dmma": "9.0%",
    "load sectors per request": "16",
    "store sectors per request": "4",
    "shared bank conflict count": "4,096",
    "local bytes": "4 KiB",
    "executed flop count": "9,000,000,000",
}
"""What people read."""
