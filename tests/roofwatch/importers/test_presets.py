"""Presets of tables that projects publish, on small files in their formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofwatch.importers import (
    FileImportError,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    Outcome,
)
from roofwatch.importers.git_history import versions_of
from roofwatch.importers.reading import import_file
from roofwatch.importers.records import to_records
from roofwatch.importers.table_map import TableMap
from roofwatch.importers.tables import direction_of
from roofwatch.model.metrics import RATIO_TO, Better
from tests.git_repository import commit_all, make_repository

SHA = "42ae6972b00dd3d2936c5b80a2c96ae4d2fd6608"
FLYDSL = {
    "schema": 1,
    "repo": "ROCm/FlyDSL",
    "records": [
        {
            "op": "fp8_gemm",
            "shape": "128x4096x4096",
            "dtype": "fp8",
            "metric": "speedup",
            "value": 1.26,
            "status": "ok",
            "vs_main": None,
            "extra": {"flydsl_us": 45.0, "aiter_us": 56.8, "baseline": "aiter"},
            "ts": "2026-07-09T00:21:27Z",
            "commit": SHA,
            "pr": None,
            "run_id": 1,
            "arch": "gfx1201",
        },
        {
            "op": "layernorm",
            "shape": "32768x8192",
            "dtype": "bf16",
            "metric": "TB/s",
            "value": 0.51,
            "status": "failed",
            "vs_main": {"label": "main", "ratio": 1.0},
            "extra": None,
            "ts": "2026-07-09T00:25:00Z",
            "commit": SHA,
            "pr": None,
            "run_id": 1,
            "arch": "gfx1201",
        },
        {"op": "layernorm", "metric": "TB/s", "value": 9.0, "commit": SHA, "pr": 7, "run_id": 2},
    ],
}
TILEOPS = """<?xml version='1.0' encoding='utf-8'?>
<testsuites><testsuite name="pytest"><testcase classname="bench" name="test_mla[4k-float16]" time="9.4">
<properties><property name="op" value="MlaFwdOp"/>
<property name="tileops_device_busy_ms" value="0.0372"/>
<property name="tileops_device_busy_p10_ms" value="0.0371"/>
<property name="tileops_device_busy_p90_ms" value="0.0374"/>
<property name="tileops_latency_ms" value="0.0385"/><property name="tileops_tflops" value="288.2"/>
<property name="torch-ref_device_busy_ms" value="0.1646"/>
<property name="baseline_device_busy_ms" value="0.1646"/>
</properties></testcase></testsuite></testsuites>
"""
FLASH_ATTENTION = [
    {
        "date": f"2026-09-0{day}",
        "sha": SHA,
        "gpu": {"name": "NVIDIA B200", "arch": "sm100"},
        "results": [
            {
                "direction": "fwd",
                "hdim": 128,
                "hdim_v": 128,
                "seqlen_q": 4096,
                "seqlen_kv": 4096,
                "causal": True,
                "group": "mha",
                "tflops": 1500.0 + day,
            }
        ],
    }
    for day in (1, 2)
]
HELION = {
    "generated_at": "2026-09-01T00:00:00Z",
    "runs": [{"run_id": "5", "sha": SHA[:8], "full_sha": SHA, "kernel_count": 1}],
    "summary": [
        {
            "kernel": "softmax",
            "platform": "NVIDIA H100",
            "helion_speedup_geomean": 1.1,
            "history": [
                {
                    "run_id": "5",
                    "full_sha": SHA,
                    "date": "2026-09-01T00:00:00Z",
                    "helion_speedup_geomean": 1.1,
                    "per_shape": {
                        "shapes": ["(4096, 256)", "(4096, 512)"],
                        "helion_speedup": [1.0, 1.2],
                        "torch_compile_speedup": [0.9, 1.0],
                        "helion_latency_ms": [0.02, 0.04],
                        "helion_compile_time_s": [],
                    },
                }
            ],
        }
    ],
}
AITER = """gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio
gfx942,80,128,1280,8192,torch.int8,asm,3,4,14.7532,gemm_64x128,181.95,804.03,0.1279
gfx942,304,128,1536,5120,torch.int8,asm,0,1,17.9602,gemm_16x128,112.1,496.26,0.0
"""
FLASHINFER = """routine,median_time,std_time,tflops,tb_per_sec,backend,resolved_backend,s_qo,causal
BatchDecode,0.0123,0.0001,310.5,2.1,fa2,,4096,True
BatchDecode,0.0110,0.0001,340.5,2.3,cudnn,,4096,True
"""
PROTON = [
    {
        "frame": {"name": "ROOT", "type": "function"},
        "metrics": {},
        "children": [
            {
                "frame": {"name": "step", "type": "function"},
                "metrics": {},
                "children": [
                    {
                        "frame": {"name": "_attn_fwd", "type": "function"},
                        "metrics": {"count": 2, "device_id": "0", "time (ns)": 160448},
                        "children": [],
                    }
                ],
            }
        ],
    },
    {"CUDA": {"0": {"arch": "90", "clock_rate": 1980000}}},
]
ROCPROF_STATS = """"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"add(float*, int)",2,20960,10480.000000,100.00,10240,10720,240.0
"""
ROCPROF_TRACE = """"Kind","Agent_Id","Kernel_Id","Kernel_Name","Start_Timestamp","End_Timestamp","Grid_Size_X"
"KERNEL_DISPATCH","Agent 4",10,"add(float*)",1551874061244694,1551874061255734,1024
"KERNEL_DISPATCH","Agent 4",10,"add(float*)",1551874061344694,1551874061355736,1024
"""


def read(folder: Path, name: str, content: object) -> tuple[str, ImportedRun]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return import_file(path)


def numbers(run: ImportedRun) -> dict[tuple[str, str, str], tuple[float | None, str, str]]:
    """Value, unit and direction by case, implementation and metric."""
    return {
        (row.case, row.implementation, row.metric): (row.value, row.unit, str(row.better))
        for row in run.rows
    }


def test_flydsl(tmp_path: Path) -> None:
    name, run = read(tmp_path, "history.json", FLYDSL)

    assert (name, run.device) == ("flydsl", "gfx1201")
    assert numbers(run) == {
        ("fp8_gemm", "", "speedup"): (1.26, "speedup", "higher"),
        ("fp8_gemm", "flydsl", "time"): (45.0, "us", "lower"),
        ("fp8_gemm", "aiter", "time"): (56.8, "us", "lower"),
        ("layernorm", "", "TB/s"): (None, "TB/s", "higher"),
    }
    failed = next(row for row in run.rows if row.case == "layernorm")
    assert (failed.outcome, failed.message) == (Outcome.CRASHED, "its status is failed")
    assert run.notes == ()
    assert [row.implementation for row in run.rows if row.is_control] == ["aiter"]


def test_an_imported_row_is_divided_by_its_control(tmp_path: Path) -> None:
    _, run = read(tmp_path, "history.json", FLYDSL)
    (record,) = to_records(run, tmp_path, project="p", revision=None, folder=tmp_path)

    (ratio,) = [value for value in record.imported if RATIO_TO in value.metric]
    assert ratio.key == "time, ratio to aiter (ratio, lower)"
    assert ratio.value == pytest.approx(45.0 / 56.8)


def test_tileops_takes_what_its_results_lack_from_the_file_beside(tmp_path: Path) -> None:
    meta = {"commit": SHA, "date": "2026-09-06", "gpu": "NVIDIA H200"}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    name, run = read(tmp_path, "bench_results.xml", TILEOPS)

    assert (name, run.device) == ("tileops", "NVIDIA H200")
    assert numbers(run) == {
        ("MlaFwdOp", "tileops", "device time"): (0.0372, "ms", "lower"),
        ("MlaFwdOp", "torch-ref", "device time"): (0.1646, "ms", "lower"),
        ("MlaFwdOp", "tileops", "latency"): (0.0385, "ms", "lower"),
        ("MlaFwdOp", "tileops", "compute rate"): (288.2, "TFLOP/s", "higher"),
    }
    first = run.rows[0]
    assert (first.low, first.high, first.commit and first.commit.sha) == (0.0371, 0.0374, SHA)


def test_xml_with_a_document_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(FileImportError, match="document type"):
        read(tmp_path, "bench.xml", f'<!DOCTYPE a [<!ENTITY b "c">]>{TILEOPS.split("?>")[1]}')


def test_two_nights_of_flash_attention_at_one_commit_are_two_runs(tmp_path: Path) -> None:
    lines = "\n".join(map(json.dumps, FLASH_ATTENTION))
    name, run = read(tmp_path, "benchmark_history.jsonl", lines)
    records = list(to_records(run, tmp_path, project="p", revision=None, folder=tmp_path))

    assert (name, run.device) == ("flash-attention", "NVIDIA B200")
    assert [value.value for one in records for value in one.imported] == [1501.0, 1502.0]
    assert records[0].cases[0].kernel == "mha fwd"
    assert records[0].cases[0].shape["seqlen_kv"] == 4096


def test_helion_has_a_row_for_each_shape(tmp_path: Path) -> None:
    name, run = read(tmp_path, "dashboard-data.json", HELION)

    assert name == "helion"
    shown = [
        (row.implementation, row.metric, row.parameters["per_shape.shapes"], row.value)
        for row in run.rows
    ]
    assert ("helion", "latency", "(4096, 256)", 0.02) in shown
    assert ("helion", "speedup", "(4096, 512)", 1.2) in shown
    assert ("torch_compile", "speedup", "(4096, 512)", 1.0) in shown
    assert {row.metric for row in run.rows} == {"latency", "speedup"}


def test_aiter_has_the_file_as_kernel(tmp_path: Path) -> None:
    name, run = read(tmp_path, "a8w8_tuned_gemm.csv", AITER)

    assert name == "aiter"
    assert {row.case for row in run.rows} == {"a8w8_tuned_gemm"}
    times = [row for row in run.rows if row.metric == "time"]
    assert [(row.value, row.unit, row.implementation, row.device) for row in times] == [
        (14.7532, "us", "", "gfx942"),
        (17.9602, "us", "", "gfx942"),
    ]
    # what the tuner chose is no parameter: another choice is the same series
    assert times[0].parameters == {
        "cu_num": "80",
        "M": "128",
        "N": "1280",
        "K": "8192",
        "q_dtype_w": "torch.int8",
    }


def test_flashinfer_takes_all_other_columns_as_parameters(tmp_path: Path) -> None:
    name, run = read(tmp_path, "results.csv", FLASHINFER)

    assert name == "flashinfer"
    assert numbers(run)["BatchDecode", "fa2", "time"] == (0.0123, "ms", "lower")
    assert dict(run.rows[0].parameters) == {"s_qo": "4096", "causal": "True"}


def test_proton_has_a_row_for_each_path_with_a_time(tmp_path: Path) -> None:
    name, run = read(tmp_path, "profile.hatchet", PROTON)

    assert name == "proton"
    assert numbers(run) == {
        ("step > _attn_fwd", "", "average time"): (80224.0, "ns", "lower"),
        ("step > _attn_fwd", "", "total time"): (160448, "ns", "lower"),
        ("step > _attn_fwd", "", "launches"): (2, "count", "unknown"),
    }


def test_statistics_of_rocprofv3_are_read(tmp_path: Path) -> None:
    name, stats = read(tmp_path, "1_kernel_stats.csv", ROCPROF_STATS)

    assert name == "rocprofv3"
    assert numbers(stats)["add(float*, int)", "", "average time"] == (10480.0, "ns", "lower")


def test_traces_of_rocprofv3_are_read(tmp_path: Path) -> None:
    name, trace = read(tmp_path, "1_kernel_trace.csv", ROCPROF_TRACE)

    assert name == "rocprofv3-trace"
    assert [(row.case, row.value) for row in trace.rows] == [
        ("add(float*)", 11040.0),
        ("add(float*)", 11042.0),
    ]


def test_a_map_without_a_value_is_refused() -> None:
    with pytest.raises(FileImportError, match=r"import.presets.ours: lacks value=COLUMN"):
        TableMap.of({"case": ["kernel"]}, name="import.presets.ours")


def test_a_map_with_an_unknown_key_is_refused() -> None:
    with pytest.raises(FileImportError, match="colour: unknown"):
        TableMap.parse(["case=kernel value=p50 colour=red"])


@pytest.mark.parametrize(
    ("metric", "unit", "better"),
    [
        ("time", "ms", "lower"),
        ("speedup", "speedup", "higher"),
        ("TB/s", "TB/s", "higher"),
        ("TFLOPS", "TFLOPS", "higher"),
        ("memory", "MiB", "lower"),
        ("score", "points", "unknown"),
    ],
)
def test_the_direction_follows_from_the_metric_with_its_unit(
    metric: str, unit: str, better: str
) -> None:
    assert direction_of(metric, unit) == better


def test_every_version_of_a_file_on_a_branch_is_read(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "pages")
    results, meta = repository / "nightly" / "bench.xml", repository / "nightly" / "meta.json"
    results.parent.mkdir()
    for number in range(3):
        meta.write_text(json.dumps({"commit": f"{number:040x}", "date": f"2026-09-0{number + 1}"}))
        results.write_text(TILEOPS.replace("0.0372", f"0.037{number}"))
        commit_all(repository)

    with versions_of(repository, "main:nightly/bench.xml") as paths:
        runs = [import_file(path)[1] for path in paths]

    assert [run.rows[0].value for run in runs] == [0.0370, 0.0371, 0.0372]
    shas = [row.commit.sha for run in runs for row in run.rows[:1] if row.commit]
    assert shas == [f"{number:040x}" for number in range(3)]


def test_a_branch_without_the_file_is_refused(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "pages")
    (repository / "a.txt").write_text("a")
    commit_all(repository)
    with (
        pytest.raises(FileImportError, match=r"main: has no file b\.json"),
        versions_of(repository, "main:b.json"),
    ):
        pass


def test_only_some_of_several_statistics_of_one_number_are_judged(
    tmp_path: Path,
) -> None:
    rows = [
        ImportedRow(
            case="a",
            metric="time",
            value=1.0,
            unit="s",
            better=Better.LOWER,
            statistic=name,
            commit=ImportedCommit(sha=SHA, measured_at=1.0),
        )
        for name in ("median", "min", "mean", "p99")
    ]
    run = ImportedRun(tool="t", rows=tuple(rows))
    (record,) = to_records(run, tmp_path, project="p", revision=None, folder=tmp_path)

    directions = {value.statistic: str(value.better) for value in record.imported}
    assert directions == {"median": "lower", "min": "unknown", "mean": "unknown", "p99": "lower"}


# --- forms of the projects' files that differ from the usual one


def test_flash_attention_tells_cases_apart_by_all_sizes(tmp_path: Path) -> None:
    result = {"direction": "fwd", "backend": "FA4", "hdim": 64, "batch": 8, "group": "mha"}
    results = [
        result | {"nheads_kv": heads, "ms": ms, "tflops": 700.0, "tbs": 0.3}
        for heads, ms in ((8, 1.5), (32, 2.5))
    ]
    results.append(result | {"nheads_kv": 1, "ms": None, "tflops": None})
    line = {"date": "2026-05-02", "sha": SHA, "gpu": {"name": "B200"}, "results": results}
    _, run = read(tmp_path, "benchmark_history.jsonl", json.dumps(line))

    times = {row.parameters["nheads_kv"]: row.value for row in run.rows if row.metric == "time"}
    assert times == {8: 1.5, 32: 2.5}
    assert run.notes == ()


def test_a_wrong_result_of_helion_has_no_time(tmp_path: Path) -> None:
    document = json.loads(json.dumps(HELION))
    shapes = document["summary"][0]["history"][0]["per_shape"]
    shapes["helion_accuracy"] = [1.0, 0.0]
    _, run = read(tmp_path, "dashboard-data.json", document)

    latencies = [row for row in run.rows if row.metric == "latency"]
    assert [row.outcome for row in latencies] == [Outcome.OK, Outcome.INCORRECT]
    assert [row.value for row in latencies] == [0.02, None]
    assert {row.implementation for row in run.rows if row.is_control} == {"torch_compile"}


def test_two_platforms_of_helion_are_two_devices(tmp_path: Path) -> None:
    document = json.loads(json.dumps(HELION))
    document["summary"].append(document["summary"][0] | {"platform": "NVIDIA B200"})
    _, run = read(tmp_path, "dashboard-data.json", document)
    records = to_records(run, tmp_path, project="p", revision=None, folder=tmp_path)

    devices = [record.environment.device_name for record in records]
    assert devices == ["NVIDIA H100", "NVIDIA B200"]


def test_tuned_mixtures_of_experts_of_aiter(tmp_path: Path) -> None:
    table = (
        "cu_num,token,expert,topk,q_type,block_m,us1,kernelName1,err1,us2,kernelName2,err2,us,tflops\n"
        "256,16,257,9,per_1x32,32,41.0,a,0.0%,26.0,b,1.0%,67.0,10.0\n"
        "256,32,257,9,per_1x32,64,0.0,a,0.0%,0.0,b,1.0%,0.0,0.0\n"
        "256,64,257,9,per_1x32,64,inf,a,0.0%,5,b,1.0%,inf,-1\n"
    )
    _, run = read(tmp_path, "tuned_fmoe.csv", table)

    times = [row for row in run.rows if row.metric == "time"]
    assert [(row.parameters["token"], row.value, row.outcome) for row in times] == [
        ("16", 67.0, Outcome.OK),
        ("64", None, Outcome.CRASHED),
    ]
    assert "omitted: 1 value of us that no measurement gives: 0 in row 2" in run.notes


def test_a_rate_of_minus_one_of_flashinfer_is_not_measured(tmp_path: Path) -> None:
    table = FLASHINFER.replace("310.5,2.1", "310.5,-1").replace("0.0110", "OOM")
    _, run = read(tmp_path, "results.csv", table)

    assert ("BatchDecode", "fa2", "memory rate") not in numbers(run)
    failed = next(row for row in run.rows if row.outcome is not Outcome.OK)
    assert (failed.implementation, failed.outcome) == ("cudnn", Outcome.OUT_OF_MEMORY)


def test_older_results_of_tileops_are_read_without_device_time(
    tmp_path: Path,
) -> None:
    older = TILEOPS.replace("_device_busy", "_x").replace(
        "</testsuite>",
        '<testcase name="test_big" classname="bench"><failure message="CUDA out of memory"/>'
        "</testcase></testsuite>",
    )
    name, run = read(tmp_path, "bench_results.xml", older)

    assert name == "tileops"
    assert numbers(run)["MlaFwdOp", "tileops", "latency"] == (0.0385, "ms", "lower")
    failed = next(row for row in run.rows if row.case == "bench")
    assert (failed.implementation, failed.outcome) == ("tileops", Outcome.OUT_OF_MEMORY)
    assert run.notes == ("there is no meta.json in the same folder",)


def test_versions_that_a_file_has_are_recorded(tmp_path: Path) -> None:
    environment = {"driver": "595.71.05", "torch": "2.13.0+cu132", "cuda": "13.2"}
    meta = {"commit": SHA, "date": "2026-09-06", "gpu": "H200", "environment": environment}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    _, run = read(tmp_path, "bench_results.xml", TILEOPS)
    (record,) = to_records(run, tmp_path, project="p", revision=None, folder=tmp_path)

    assert record.environment.driver_version == "595.71.05"
    assert record.environment.torch_version == "2.13.0+cu132"
    assert record.environment.cpu_name == "unknown"


def test_counters_of_rocprofv3_have_no_direction(tmp_path: Path) -> None:
    table = (
        '"Dispatch_Id","Grid_Size","Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp",'
        '"End_Timestamp"\n1,1024,"add(float*)","SQ_WAVES",16384.0,1,2\n'
    )
    name, run = read(tmp_path, "counter_collection.csv", table)

    assert name == "rocprofv3-counters"
    assert numbers(run) == {("add(float*)", "", "SQ_WAVES"): (16384.0, "", "unknown")}
