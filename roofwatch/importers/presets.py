"""Maps of the tables that projects publish. docs/how-to/import.md says which were made from a real
file, and which from documentation or source code only.
"""

import re
from collections.abc import Mapping

from roofwatch.importers.table_map import AUTO, FILE, FOLDER, OTHERS, TableMap
from roofwatch.importers.tables import TableImporter

_LIGER = TableMap(
    case=("kernel_name", "kernel_operation_mode"),
    parameters=("x_name", "x_value", "extra_benchmark_config_str"),
    value=("y_value_50",),
    low=("y_value_20",),
    high=("y_value_80",),
    implementation="kernel_provider",
    metric=("metric_name",),
    unit=("metric_unit",),
    better=("lower",),
    commit=FOLDER,
    measured="timestamp",
    device="gpu_name",
    skip=("x_label", "liger_version"),
)
_FLYDSL = TableMap(
    rows="records",
    case=("op",),
    parameters=("shape", "dtype"),
    value=("value", "extra.*_us"),
    metric=("metric", "time"),
    unit=("metric", "us"),
    better=(AUTO, "lower"),
    commit="commit",
    measured="ts",
    run="run_id",
    device="arch",
    status="status",
    unless="pr",
    controls=("aiter", "ck", "hipblaslt", "torch*"),
    skip=("runner", "source", "extra.baseline", "vs_tag.tag", "vs_main.label"),
)
_TILEOPS = TableMap(
    case=("op|classname",),
    parameters=("name",),
    value=("*_device_busy_ms", "*_latency_ms", "*_tflops", "*_bandwidth_tbs"),
    low=("*_device_busy_p10_ms", "-", "-", "-"),
    high=("*_device_busy_p90_ms", "-", "-", "-"),
    metric=("device time", "latency", "compute rate", "memory rate"),
    unit=("ms", "ms", "TFLOP/s", "TB/s"),
    better=("lower", "lower", "higher", "higher"),
    commit="meta.commit",
    measured="meta.date|suite.timestamp",
    device="meta.gpu|meta.environment.gpu",
    driver="meta.environment.driver",
    torch="meta.environment.torch",
    cuda="meta.environment.cuda",
    triton="meta.packages.triton",
    status="status",
    skip=("baseline",),
    own=("tileops",),
    beside="meta.json",
)
_FLASH_ATTENTION = TableMap(
    rows="results",
    case=("group", "direction"),
    parameters=(
        "hdim",
        "hdim_v",
        "headdim",
        "headdim_v",
        "seqlen_q",
        "seqlen_kv",
        "seqlen",
        "causal",
        "batch",
        "nheads",
        "nheads_kv",
        "gather_kv",
        "dtype",
    ),
    value=("ms", "tflops", "tbs"),
    metric=("time", "compute rate", "memory rate"),
    unit=("=ms", "TFLOP/s", "TB/s"),
    better=("lower", "higher", "higher"),
    implementation="backend",
    commit="full_sha|sha|commit",
    measured="date",
    run="date",
    device="gpu.name",
    status="status|error",
    skip=("mfu_pct", "bw_pct", "hostname", "gpu.count", "gpu.sm", "gpu.arch"),
)
_HELION = TableMap(
    rows="summary.history",
    zip="per_shape.shapes",
    case=("kernel",),
    parameters=("per_shape.shapes",),
    value=(
        "per_shape.*_latency_ms",
        "per_shape.*_speedup",
        "per_shape.*_compile_time_s",
    ),
    metric=("latency", "speedup", "compile time"),
    unit=("ms", "×", "=s"),
    better=("lower", "higher", "lower"),
    commit="full_sha|sha",
    measured="date",
    run="run_id",
    device="platform",
    status="per_shape.*_accuracy",
    own=("helion",),
)
_AITER = TableMap(
    case=(FILE,),
    parameters=(OTHERS,),
    value=("us", "us1", "us2", "tflops", "bw"),
    metric=("time", "time of stage 1", "time of stage 2", "compute rate", "memory rate"),
    unit=("=us", "=us", "=us", "TFLOP/s", "GB/s"),
    better=("lower", "lower", "lower", "higher", "higher"),
    device="gfx",
    # what the tuner chose, and its errors
    skip=(
        "libtype",
        "solidx",
        "solutionIdx",
        "kernelId",
        "splitK",
        "kernelName",
        "kernelName1",
        "kernelName2",
        "block_m",
        "ksplit",
        "run_1stage",
        "errRatio",
        "err_ratio",
        "err1",
        "err2",
        "xbf16",
        "flat",
        "BV",
        "_tag",
        "tag",
    ),
)
_FLASHINFER = TableMap(
    case=("routine",),
    parameters=(OTHERS,),
    value=("median_time", "tflops", "tb_per_sec"),
    metric=("time", "compute rate", "memory rate"),
    unit=("ms", "TFLOP/s", "TB/s"),
    better=("lower", "higher", "higher"),
    implementation="backend",
    skip=(
        "std_time",
        "resolved_backend",
        "backend_resolved",
        "backend_fallback_reason",
        "autotuned",
        "autotune_winner",
        "autotune_tactic",
        "refcheck",
        "no_cuda_graph",
        "allow_output_mismatch",
        "random_seed",
        "case_tag",
        "generate_repro_command",
        "repro_command",
    ),
)
_PROTON = TableMap(
    tree="children",
    case=("path",),
    value=(
        "metrics.time (ns)/metrics.count",
        "metrics.time (ns)",
        "metrics.time (us)",
        "metrics.time (ms)",
        "metrics.time (s)",
        "metrics.cycles",
        "metrics.normalized_cycles",
        "metrics.count",
    ),
    metric=(
        "average time",
        "total time",
        "total time",
        "total time",
        "total time",
        "cycles",
        "cycles by warp",
        "launches",
    ),
    unit=("ns", "ns", "us", "ms", "=s", "=cycles", "=cycles", "=count"),
    better=("lower", "lower", "lower", "lower", "lower", "lower", "lower", "unknown"),
)
_ROCPROF_STATS = TableMap(
    case=("Name",),
    value=("AverageNs", "Calls"),
    low=("MinNs", "-"),
    high=("MaxNs", "-"),
    metric=("average time", "calls"),
    unit=("ns", "=count"),
    better=("lower", "unknown"),
)
_ROCPROF_TRACE = TableMap(
    case=("Kernel_Name",),
    parameters=("Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
    value=("End_Timestamp-Start_Timestamp",),
    metric=("time",),
    unit=("ns",),
    better=("lower",),
    skip=("Agent_Id", "Queue_Id", "Thread_Id", "Stream_Id", "Correlation_Id"),
)
_ROCPROF_COUNTERS = TableMap(
    case=("Kernel_Name",),
    parameters=("Grid_Size",),
    value=("Counter_Value",),
    metric=("Counter_Name",),
    skip=("Agent_Id", "Queue_Id", "Thread_Id", "Process_Id", "Correlation_Id"),
)

PRESETS: Mapping[str, TableImporter] = {
    "liger": TableImporter(_LIGER, "liger", (b"kernel_operation_mode", b"y_value_50")),
    "flydsl": TableImporter(_FLYDSL, "FlyDSL", (b'"records"', b'"op"', b'"metric"', b'"shape"')),
    "tileops": TableImporter(_TILEOPS, "TileOPs", (b"<testcase", b"tileops_latency_ms")),
    "flash-attention": TableImporter(
        _FLASH_ATTENTION, "flash-attention", (b'"sha"', b'"gpu"', b'"results"', b'"tflops"')
    ),
    "helion": TableImporter(
        _HELION, "Helion", (b'"generated_at"', b'"runs"', b'"full_sha"', b'"run_id"')
    ),
    "aiter": TableImporter(_AITER, "aiter", (b",us,", b"kernelName", b"cu_num")),
    "flashinfer": TableImporter(_FLASHINFER, "FlashInfer", (b"routine,", b"median_time,")),
    "proton": TableImporter(
        columns=_PROTON,
        tool="Proton",
        marks=(b'"frame"', b'"children"', b'"metrics"'),
        name=re.compile(r"\.hatchet"),
    ),
    "rocprofv3": TableImporter(_ROCPROF_STATS, "rocprofv3", (b"TotalDurationNs", b"AverageNs")),
    "rocprofv3-counters": TableImporter(
        _ROCPROF_COUNTERS, "rocprofv3", (b"Kernel_Name", b"Counter_Name", b"Counter_Value")
    ),
    "rocprofv3-trace": TableImporter(
        _ROCPROF_TRACE, "rocprofv3", (b"Kernel_Name", b"Start_Timestamp", b"End_Timestamp")
    ),
}
"""By format, for `--as`. Of two that recognise a file, the first reads it."""
