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
    controls=("aiter",),
)
_TILEOPS = TableMap(
    case=("op",),
    parameters=("name",),
    value=("*_device_busy_ms", "*_latency_ms", "*_tflops"),
    low=("*_device_busy_p10_ms", "-", "-"),
    high=("*_device_busy_p90_ms", "-", "-"),
    metric=("device time", "latency", "compute rate"),
    unit=("ms", "ms", "TFLOP/s"),
    better=("lower", "lower", "higher"),
    commit="meta.commit",
    measured="meta.date",
    device="meta.gpu",
    status="status",
    skip=("baseline",),
    controls=("torch-ref", "torch-compile", "torch-sdpa", "torch-gather"),
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
    ),
    value=("tflops", "ms"),
    metric=("compute rate", "time"),
    unit=("TFLOP/s", "ms"),
    better=("higher", "lower"),
    implementation="backend",
    commit="sha",
    measured="date",
    run="date",
    device="gpu.name",
)
_HELION = TableMap(
    rows="summary.history",
    zip="per_shape.shapes",
    case=("kernel",),
    parameters=("per_shape.shapes",),
    value=("per_shape.helion_latency_ms", "per_shape.*_speedup", "per_shape.helion_compile_time_s"),
    metric=("latency", "speedup", "compile time"),
    unit=("ms", "×", "s"),
    better=("lower", "higher", "lower"),
    implementation="helion",
    commit="full_sha",
    measured="date",
    run="run_id",
    device="platform",
)
_AITER = TableMap(
    case=(FILE,),
    parameters=("M", "N", "K", "m", "n", "k", "cu_num", "q_dtype_w", "dtype", "bias", "outdtype"),
    value=("us", "tflops", "bw"),
    metric=("time", "compute rate", "memory rate"),
    unit=("=us", "TFLOP/s", "GB/s"),
    better=("lower", "higher", "higher"),
    implementation="libtype",
    device="gfx",
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
    value=("metrics.time (ns)",),
    metric=("total time",),
    unit=("ns",),
    better=("lower",),
)
_ROCPROF_STATS = TableMap(
    case=("Name",),
    value=("AverageNs", "Calls"),
    metric=("average time", "calls"),
    unit=("ns", "count"),
    better=("lower", "unknown"),
)
_ROCPROF_TRACE = TableMap(
    case=("Kernel_Name",),
    parameters=("Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
    value=("End_Timestamp-Start_Timestamp",),
    metric=("time",),
    unit=("ns",),
    better=("lower",),
)

PRESETS: Mapping[str, TableImporter] = {
    "liger": TableImporter(_LIGER, "liger", (b"kernel_operation_mode", b"y_value_50")),
    "flydsl": TableImporter(_FLYDSL, "FlyDSL", (b'"records"', b'"op"', b'"vs_main"')),
    "tileops": TableImporter(_TILEOPS, "TileOPs", (b"<testcase", b"_device_busy_ms")),
    "flash-attention": TableImporter(
        _FLASH_ATTENTION, "flash-attention", (b'"sha"', b'"gpu"', b'"results"', b'"tflops"')
    ),
    "helion": TableImporter(_HELION, "Helion", (b'"helion_speedup_geomean"', b'"summary"')),
    "aiter": TableImporter(_AITER, "aiter", (b",us,", b"kernelName", b"cu_num")),
    "flashinfer": TableImporter(_FLASHINFER, "FlashInfer", (b"routine,median_time,std_time",)),
    "proton": TableImporter(
        _PROTON, "Proton", (b'"frame"', b'"children"', b'"metrics"'), re.compile(r"\.hatchet")
    ),
    "rocprofv3": TableImporter(_ROCPROF_STATS, "rocprofv3", (b'"TotalDurationNs"', b'"AverageNs"')),
    "rocprofv3-trace": TableImporter(
        _ROCPROF_TRACE, "rocprofv3", (b'"Kernel_Name"', b'"Start_Timestamp"')
    ),
}
"""By format, for `--as`."""
