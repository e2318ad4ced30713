"""What each importer reads: real files against values computed by other scripts, and small files of
each rule.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roofwatch.importers import FileImportError, ImportedCommit, ImportedRow, ImportedRun
from roofwatch.importers.commit_list import read_commit_list
from roofwatch.importers.reading import import_file
from roofwatch.importers.table_map import TableMap
from roofwatch.model.machine import Outcome

DATA = Path(__file__).parents[2] / "data" / "imports"
EXPECTED = json.loads((DATA / "expected.json").read_text())


def read(path: Path, format_name: str | None = None) -> ImportedRun:
    return import_file(path, format_name)[1]


def write(folder: Path, document: Any, name: str = "results.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def only(run: ImportedRun, **fields: Any) -> ImportedRow:
    """The one row with these fields."""
    (found,) = [
        row
        for row in run.rows
        if all(getattr(row, name) == value for name, value in fields.items())
    ]
    return found


def numbers_in(expected: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Case and value of every number in an entry of `expected.json`."""
    keys = {
        "pytest": (
            "min",
            "max",
            "mean",
            "stddev",
            "median",
            "iqr",
            "q1",
            "q3",
            "ops",
            "rounds",
            "iterations",
        ),
        "gbench": ("real_time", "cpu_time", "iterations"),
        "nvbench": (
            "samples",
            "cpu_mean_s",
            "cpu_noise",
            "gpu_mean_s",
            "gpu_noise",
            "batch_samples",
        ),
        "tritonbench": ("value",),
    }.get(expected["kind"])
    for row in expected["rows"]:
        case = (
            row.get("fullname")
            or row.get("run_name")
            or row.get("name")
            or row.get("benchmark")
            or row.get("op")
        )
        values = row["values"] if keys is None else [row.get(key) for key in keys]
        yield from ((case, value) for value in values if isinstance(value, int | float))


@pytest.mark.parametrize(
    "name", [name for name, entry in EXPECTED.items() if entry["kind"] != "asv_index"]
)
def test_every_expected_number_is_read_under_its_case(name: str) -> None:
    read_numbers = Counter((row.case, row.value) for row in read(DATA / name).rows)

    expected: Counter[tuple[str, float | None]] = Counter(numbers_in(EXPECTED[name]))
    assert expected
    assert not expected - read_numbers


def test_every_value_of_data_js_is_read_with_its_commit() -> None:
    format_name, run = import_file(DATA / "data.js")

    entries = json.loads((DATA / "data.js").read_text().split("=", 1)[1])["entries"]
    expected = [
        (one["commit"]["id"], bench["name"], bench["value"])
        for runs in entries.values()
        for one in runs
        for bench in one["benches"]
    ]
    assert format_name == "github-action-benchmark"
    assert [(row.commit and row.commit.sha, row.case, row.value) for row in run.rows] == expected
    units = {(row.implementation, row.unit, str(row.better)) for row in run.rows}
    assert {
        ("go", "ns/op", "lower"),
        ("pytest", "iter/sec", "higher"),
        ("googlecpp", "ns/iter", "lower"),
    } <= units
    assert run.project == "benchmark-action/github-action-benchmark"


def test_a_data_js_that_does_more_than_assign_json_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "window.BENCHMARK_DATA = {'entries': alert(1)}", "data.js")
    with pytest.raises(FileImportError, match="not a complete JSON document"):
        read(path)


def test_pytest_benchmark_names_the_commit_of_a_dirty_work_tree() -> None:
    run = read(DATA / "pytest_benchmark_fib.json")

    assert run.tool_version == "3.2.2"
    assert run.commit.sha == "9d55ab0434c9088746ae2d134702d782bf088644"
    assert run.commit.is_dirty


def test_pytest_benchmark_says_which_way_is_better() -> None:
    run = read(DATA / "pytest_benchmark_fib.json")

    case = "bench.py::test_fib_10"
    assert only(run, case=case, statistic="median").better == "lower"
    assert only(run, case=case, statistic="median").unit == "s"
    assert only(run, case=case, metric="ops").better == "higher"
    assert only(run, case=case, statistic="stddev").better == "unknown"


def test_a_note_among_the_samples_of_pytest_benchmark_is_no_sample() -> None:
    run = read(DATA / "pytest_benchmark_fib.json")

    case = "bench.py::test_fib_10"
    samples = [row for row in run.rows if row.case == case and row.statistic == "sample"]
    # the fifth entry is a note
    assert len(samples) == 4


def test_google_benchmark_keeps_each_unit() -> None:
    real = read(DATA / "google_benchmark_compare.json")

    assert only(real, case="BM_NotBadTimeUnit", metric="real_time").unit == "s"
    assert only(real, case="BM_2xSlower", metric="cpu_time").unit == "ns"
    assert only(real, case="MyComplexityTest", metric="rms").better == "unknown"


def test_google_benchmark_tells_errors_from_skips(tmp_path: Path) -> None:
    common = {
        "run_type": "iteration",
        "iterations": 1,
        "real_time": 0.0,
        "cpu_time": 0.0,
        "time_unit": "ns",
    }
    document = {
        "context": {"date": "2026-01-01T00:00:00+00:00", "library_version": "v1.9.4"},
        "benchmarks": [
            {"name": "BM_bad", "error_occurred": True, "error_message": "no device", **common},
            {"name": "BM_skip", "skipped": True, "skip_message": "not here", **common},
            {
                "name": "BM_good",
                **common | {"real_time": 5.0, "bytes_per_second": 1e9, "mine": 3.0},
            },
        ],
    }

    run = read(write(tmp_path, document))

    assert only(run, case="BM_bad", metric="real_time").outcome is Outcome.CRASHED
    assert only(run, case="BM_skip", metric="real_time").outcome is Outcome.UNSUPPORTED
    assert only(run, metric="bytes_per_second").better == "higher"
    assert only(run, metric="mine").better == "unknown"
    assert run.tool_version == "v1.9.4"


def test_states_that_nvbench_skips_are_no_failures() -> None:
    run = read(DATA / "nvbench_axes.json")

    skipped = [row for row in run.rows if row.outcome is not Outcome.OK]
    assert {row.outcome for row in skipped} == {Outcome.UNSUPPORTED}
    assert len(skipped) == EXPECTED["nvbench_axes.json"]["skipped_states"]


def test_fractions_of_nvbench_are_not_percent() -> None:
    run = read(DATA / "nvbench_axes.json")

    first = {
        "case": "copy_sweep_grid_shape",
        "parameters": {"Device": 0, "BlockSize": 64, "NumBlocks": 64},
    }
    assert only(run, **first, metric="nv/cold/bw/global/utilization").unit == "ratio"
    assert only(run, **first, metric="nv/cold/bw/global/bytes_per_second").better == "higher"
    assert only(run, **first, metric="nv/cold/time/gpu", statistic="mean").better == "lower"
    assert only(run, **first, metric="nv/cold/walltime").better == "unknown"


def test_asv_tells_failed_from_skipped() -> None:
    run = read(DATA / "asv_v1.json")

    assert only(run, case="time_AAA_failure").outcome is Outcome.CRASHED
    assert only(run, case="time_AAA_skip").outcome is Outcome.UNSUPPORTED
    assert only(run, case="time_other.time_parameterized", parameters={"param1": "2"}).value == 2


def test_asv_takes_units_from_its_index() -> None:
    run = read(DATA / "asv_v1.json")

    assert only(run, case="time_units.mem_unit").unit == "bytes"
    assert only(run, case="time_secondary.track_value").better == "unknown"


def test_asv_compares_no_results_of_two_versions_of_a_benchmark() -> None:
    run = read(DATA / "django_v2.json")

    row = only(
        run,
        case="form_benchmarks.form_clean.benchmark.FormClean.time_form_clean",
        statistic="median",
    )
    assert (row.unit, row.better, row.implementation) == ("seconds", "lower", "virtualenv-py3.10")
    assert row.definition == "version ee29794571c4"
    assert run.device == "windows-2022"


def nvbench_with_samples(folder: Path, *, name: str, size: int) -> Path:
    data = [
        {"name": "filename", "type": "string", "value": name},
        {"name": "size", "type": "int64", "value": str(size)},
    ]
    state = {
        "device": 0,
        "is_skipped": False,
        "summaries": [{"tag": "nv/json/bin:nv/cold/sample_times", "data": data}],
    }
    device = {"id": 0, "name": "H100", "sm_version": 900, "global_memory_size": 1}
    document = {"devices": [device], "benchmarks": [{"name": "copy", "states": [state]}]}
    return write(folder, document, "result.json")


def test_nvbench_samples_are_read_from_the_file_beside(tmp_path: Path) -> None:
    folder = tmp_path / "result.json-bin"
    folder.mkdir()
    (folder / "0.bin").write_bytes(struct.pack("<3f", 0.5, 0.25, 1.0))
    # older versions write the path from where they ran
    path = nvbench_with_samples(tmp_path, name="some/where/result.json-bin/0.bin", size=3)

    rows = read(path).rows
    assert [(row.metric, row.statistic, row.unit, row.value) for row in rows] == [
        ("nv/cold/time/gpu", "sample", "s", value) for value in (0.5, 0.25, 1.0)
    ]
    with pytest.raises(FileImportError, match=r"0\.bin"):
        read(nvbench_with_samples(tmp_path, name="result.json-bin/0.bin", size=4))


def test_nvbench_reads_no_samples_outside_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "secret" / "key.bin"
    outside.parent.mkdir()
    outside.write_bytes(struct.pack("<f", 1.0))
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "secret").symlink_to(outside.parent)

    for name in (str(outside), "../secret/key.bin"):
        with pytest.raises(FileImportError):
            read(nvbench_with_samples(folder, name=name, size=1))


SERVING = {
    "date": "20260101-120000",
    "backend": "openai",
    "model_id": "m",
    "tokenizer_id": "m",
    "num_prompts": 2,
    "request_rate": "inf",
    "max_concurrency": None,
    "duration": 3.0,
    "completed": 2,
    "failed": 0,
    "request_throughput": 0.7,
    "mean_ttft_ms": 10.0,
    "p99.9_itl_ms": 4.0,
    "std_itl_ms": 1.0,
}


def test_each_metric_of_vllm_has_its_meaning(tmp_path: Path) -> None:
    format_name, run = import_file(write(tmp_path, SERVING))

    assert format_name == "vllm"
    assert only(run, metric="ttft").unit == "ms"
    assert only(run, metric="itl", statistic="p99.9").better == "lower"
    assert only(run, metric="itl", statistic="std").better == "unknown"
    assert only(run, metric="request_throughput").better == "higher"
    assert only(run, metric="duration").parameters["request_rate"] == "inf"


def test_a_serving_run_without_a_successful_request_failed(tmp_path: Path) -> None:
    nothing = {
        "completed": 0,
        "failed": 2,
        "mean_ttft_ms": 0.0,
        "p99.9_itl_ms": 0.0,
        "std_itl_ms": 0.0,
    }
    run = read(write(tmp_path, SERVING | nothing | {"request_throughput": 0.0}))

    assert only(run, metric="ttft").outcome is Outcome.CRASHED
    assert only(run, metric="request_throughput").outcome is Outcome.CRASHED
    assert only(run, metric="failed").outcome is Outcome.OK
    assert only(run, metric="failed").better == "lower"

    # older files do not count requests
    latencies = {"mean_ttft_ms": 0.0, "p99_ttft_ms": 0.0}
    older = read(
        write(tmp_path, {"model_id": "m", "backend": "vllm", "num_prompts": 2, **latencies})
    )
    assert {row.outcome for row in older.rows} == {Outcome.CRASHED}


def test_a_failed_request_has_no_latency(tmp_path: Path) -> None:
    lists = {"ttfts": [0.5, 0.0], "itls": [[0.1, 0.2], []], "errors": ["", "timeout"]}
    run = read(write(tmp_path, SERVING | lists | {"completed": 1, "failed": 1}))

    samples = [row for row in run.rows if row.statistic == "sample"]
    assert [(row.metric, row.value, row.outcome) for row in samples] == [
        ("ttft", 0.5, Outcome.OK),
        ("ttft", 0.0, Outcome.CRASHED),
        ("itl", 0.1, Outcome.OK),
        ("itl", 0.2, Outcome.OK),
    ]


def test_inter_token_latency_of_sglang_is_not_that_of_vllm(tmp_path: Path) -> None:
    sglang = {
        "backend": "sglang",
        "mean_e2e_latency_ms": 1.0,
        "mean_itl_ms": 2.0,
        "completed": 3,
        "model": "m",
    }
    # bench_serving appends a line a run
    format_name, run = import_file(
        write(tmp_path, "\n".join(json.dumps(sglang) for _ in range(2)), "out.jsonl")
    )
    assert format_name == "sglang"
    assert len([row for row in run.rows if row.metric == "itl"]) == 2

    def itl_of(document: dict[str, Any]) -> set[str]:
        return {
            row.definition for row in read(write(tmp_path, document)).rows if row.metric == "itl"
        }

    chunk = itl_of(SERVING)
    assert len(chunk | itl_of(sglang)) == 2
    assert itl_of(sglang | {"backend": "sglang-oai"}) == chunk


def test_tritonbench_errors_are_outcomes(tmp_path: Path) -> None:
    key = "tritonbench_fp8_gemm_fwd[x_(1, 2, 3)-triton]_"
    metrics = {
        f"{key}latency": "CUDA OOM",
        f"{key}tflops": None,
        f"{key}accuracy": True,
        "tritonbench_fp8_gemm_fwd[triton]-latency-avg": 2.0,
        "tritonbench_fp8_gemm_fwd-pass": 1,
    }
    run = read(write(tmp_path, {"env": {"device": "H100"}, "metrics": metrics}))

    latency = only(run, metric="latency", statistic="median")
    assert (latency.case, latency.parameters) == ("fp8_gemm", {"mode": "fwd", "x": "(1, 2, 3)"})
    assert (latency.outcome, latency.value, latency.implementation) == (
        Outcome.OUT_OF_MEMORY,
        None,
        "triton",
    )
    assert only(run, metric="tflops").outcome is Outcome.UNSUPPORTED
    assert only(run, metric="latency", statistic="avg").value == 2.0
    assert only(run, metric="pass").better == "higher"


TABLE_CSV = (
    "x_val;torch-latency;triton-latency;triton-speedup\n256;0.5;0.25;2.0\n512;CUDA "
    "OOM;;\naverage;0.25;;\n"
)
TABLE_PRINTED = """\
  x_val    torch-latency    triton-latency    triton-speedup
-------  ---------------  ----------------  ----------------
    256     0.5 (±1.50%)      0.25 (±0.00%)              2.0
    512         CUDA OOM
"""


@pytest.mark.parametrize(
    ("table", "name"), [(TABLE_CSV, "op_softmax_a1_b2c3d.csv"), (TABLE_PRINTED, "op_softmax.txt")]
)
def test_tritonbench_tables_are_read(tmp_path: Path, table: str, name: str) -> None:
    format_name, run = import_file(write(tmp_path, table, name))

    assert format_name == "tritonbench-table"
    row = only(
        run,
        metric="latency",
        statistic="median",
        implementation="triton",
        parameters={"x_val": "256"},
    )
    assert (row.case, row.value, row.unit) == ("softmax", 0.25, "ms")
    assert only(run, metric="speedup", parameters={"x_val": "256"}).value == 2.0
    failed = only(
        run,
        implementation="torch",
        metric="latency",
        statistic="median",
        parameters={"x_val": "512"},
    )
    assert failed.outcome is Outcome.OUT_OF_MEMORY


def test_a_hyperfine_command_that_failed_is_a_failure(tmp_path: Path) -> None:
    times = {
        "mean": 1.0,
        "stddev": None,
        "median": 1.0,
        "user": 0.5,
        "system": 0.1,
        "min": 1.0,
        "max": 1.0,
    }
    results = [
        {
            "command": "good",
            **times,
            "times": [1.0, 1.5],
            "exit_codes": [0, 0],
            "memory_usage_byte": [9, 9],
        },
        {"command": "bad", **times, "times": [0.01], "exit_codes": [1], "parameters": {"n": "3"}},
    ]
    run = read(write(tmp_path, {"results": results}))

    assert {row.outcome for row in run.rows if row.case == "good"} == {Outcome.OK}
    assert {row.outcome for row in run.rows if row.case == "bad"} == {Outcome.CRASHED}
    assert [row.value for row in run.rows if row.metric == "memory"] == [9, 9]


def test_hyperfine_2_names_the_unit_of_each_measurement(tmp_path: Path) -> None:
    measured = {"time_wall_clock": {"value": 1.5, "unit": "second"}, "exit_code": 0}
    results = [
        {
            "command": "sleep 1",
            "name": "one",
            "measurements": [measured, measured | {"exit_code": None}],
        }
    ]
    run = read(write(tmp_path, {"metadata": {"hyperfine_version": "2.0.0"}, "results": results}))

    assert [(row.case, row.value, row.unit, row.outcome) for row in run.rows] == [
        ("one", 1.5, "second", Outcome.OK),
        ("one", 1.5, "second", Outcome.CRASHED),
    ]


def test_bencher_measures_without_a_definition_have_no_direction(tmp_path: Path) -> None:
    document = {
        "a": {"latency": {"value": 88.0, "lower_value": 87.0}, "mine": {"value": 1}},
        "b": {},
    }
    run = read(write(tmp_path, document))

    latency = only(run, case="a", metric="latency", statistic="value")
    assert (latency.unit, latency.better) == ("ns", "lower")
    assert only(run, statistic="lower_value").value == 87.0
    assert only(run, metric="mine").better == "unknown"
    assert only(run, case="b").outcome is Outcome.CRASHED


@pytest.fixture
def pytorch_run(tmp_path: Path) -> ImportedRun:
    """Two values with their target, and an entry without a value."""
    entry = {
        "benchmark": {
            "name": "Helion",
            "mode": "fwd",
            "dtype": "bf16",
            "extra_info": {"device": "B200"},
        },
        "model": {"name": "softmax", "type": "op", "backend": "helion"},
        "metric": {"name": "speedup", "benchmark_values": [1.5, 1.6], "target_value": 2.0},
        "head_sha": "a" * 40,
        "timestamp": 1_700_000_000,
    }
    empty = entry | {"metric": {"name": "latency", "benchmark_values": []}}
    return read(write(tmp_path, [entry, empty]))


def test_pytorch_entries_keep_every_value(pytorch_run: ImportedRun) -> None:
    assert [(row.metric, row.value, row.statistic) for row in pytorch_run.rows] == [
        ("speedup", 1.5, "sample"),
        ("speedup", 1.6, "sample"),
        ("speedup", 2.0, "target"),
        ("latency", None, "value"),
    ]
    # the format defines neither unit nor direction
    assert {(row.unit, str(row.better)) for row in pytorch_run.rows} == {("", "unknown")}


def test_a_pytorch_entry_without_values_failed(pytorch_run: ImportedRun) -> None:
    assert pytorch_run.rows[-1].outcome is Outcome.CRASHED


def test_pytorch_entries_keep_their_commit(pytorch_run: ImportedRun) -> None:
    assert pytorch_run.commit.sha == "a" * 40
    assert pytorch_run.device == "B200"
    assert pytorch_run.rows[0].implementation == "helion"


@pytest.mark.parametrize("name", [*EXPECTED, "data.js"])
@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused_whole(tmp_path: Path, name: str, kept: float) -> None:
    content = (DATA / name).read_bytes()
    whole = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    path = tmp_path / name
    path.write_bytes(whole.rstrip()[: int(len(whole.rstrip()) * kept)])

    with pytest.raises(FileImportError):
        import_file(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        b'{"machine_info": 1, "benchmarks": 2}',
        b"\x1f\x8b\x00",
        b"\xff\xfe",
    ],
)
def test_other_content_is_refused_with_an_explanation(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content)
    for name in (
        None,
        "asv",
        "pytest-benchmark",
        "vllm",
        "bencher",
        "pytorch",
        "tritonbench-table",
        "nvbench",
    ):
        with pytest.raises(FileImportError, match=r"results\.json"):
            import_file(path, name)


def test_google_benchmark_without_a_context_is_read(tmp_path: Path) -> None:
    row = {"name": "BM_copy/64", "real_time": 12.5, "cpu_time": 12.0, "time_unit": "us"}
    run = read(write(tmp_path, {"benchmarks": [row]}))

    assert only(run, metric="real_time").value == 12.5
    assert only(run, metric="real_time").unit == "us"


@pytest.mark.parametrize("is_nested", [False, True])
def test_tritonbench_without_metrics_is_read(tmp_path: Path, is_nested: bool) -> None:
    values = {"tritonbench_softmax_fwd[x_(64, 64)-triton]_latency": 0.25}
    document = {"softmax": values} if is_nested else {"name": "softmax", **values}
    row = only(read(write(tmp_path, document)), case="softmax")

    assert (row.value, row.metric, row.unit, row.implementation) == (
        0.25,
        "latency",
        "ms",
        "triton",
    )


@pytest.mark.parametrize(
    ("tool", "unit", "better"),
    [
        ("jmh", "ops/s", "unknown"),
        ("jmh", "ops/us", "unknown"),
        ("jmh", "us/op", "lower"),
        ("customSmallerIsBetter", "TFLOPS", "unknown"),
        ("customBiggerIsBetter", "GB/s", "higher"),
        ("googlecpp", "ns/iter", "lower"),
    ],
)
def test_a_rate_is_never_lower_is_better(tmp_path: Path, tool: str, unit: str, better: str) -> None:
    bench = {"name": "copy", "value": 5, "unit": unit}
    run = {"commit": {"id": "a" * 40}, "date": 1e12, "tool": tool, "benches": [bench]}
    document = {"lastUpdate": 1, "repoUrl": "", "entries": {"suite": [run]}}

    assert only(read(write(tmp_path, document)), case="copy").better == better


def test_a_results_file_in_utf16_with_crlf_is_read(tmp_path: Path) -> None:
    text = json.dumps({"benchmarks": [{"name": "a", "real_time": 1, "cpu_time": 1,
                                       "time_unit": "ns"}]}, indent=1)  # fmt: skip
    path = tmp_path / "results.json"
    path.write_bytes(text.replace("\n", "\r\n").encode("utf-16"))

    assert only(read(path), metric="real_time").value == 1


LIGER = """\
kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_value,\
y_value_50,y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp
softmax,liger,forward,speed,ms,V,2048,0.5,0.4,0.6,{},H100,2025-11-21 00:12:20
softmax,torch,forward,speed,ms,V,2048,0.7,0.6,0.8,{},H100,2025-11-21 00:14:20
"""


def test_a_preset_reads_the_tables_of_a_project(tmp_path: Path) -> None:
    folder = tmp_path / "7644a0f-v0.7.0"
    folder.mkdir()
    run = read(write(folder, LIGER, "benchmark.csv"))
    row = only(run, implementation="liger")

    assert len({other.commit for other in run.rows}) == 1
    assert (row.case, row.value, row.low, row.high) == ("softmax forward", 0.5, 0.4, 0.6)
    assert (row.metric, row.unit, row.better) == ("speed", "ms", "lower")
    assert row.commit is not None
    assert row.commit.sha == "7644a0f"


@pytest.mark.parametrize("form", ["csv", "json", "lines"])
def test_a_table_is_read_by_a_map_of_its_columns(tmp_path: Path, form: str) -> None:
    records = [
        {"kernel": "copy", "mode": "fwd", "p50": 2},
        {"kernel": "add", "mode": "fwd", "p50": 3},
    ]
    texts = {
        "csv": "kernel,mode,p50\ncopy,fwd,2\nadd,fwd,3\n",
        "json": json.dumps(records),
        "lines": "\n".join(map(json.dumps, records)),
    }
    table = TableMap.parse(["case=kernel,mode value=p50", "unit=ms", "better=lower"])
    run = import_file(write(tmp_path, texts[form]), "table", table=table)[1]

    assert [(row.case, row.value, row.unit) for row in run.rows] == [
        ("copy fwd", 2.0, "ms"),
        ("add fwd", 3.0, "ms"),
    ]


def test_a_column_that_a_table_lacks_is_named(tmp_path: Path) -> None:
    table = TableMap.parse(["case=kernel value=p99"])

    with pytest.raises(FileImportError, match="has no column p99; it has kernel, p50"):
        import_file(write(tmp_path, "kernel,p50\ncopy,2\n"), "table", table=table)


def test_a_list_of_commits_completes_short_names(tmp_path: Path) -> None:
    sha = "7644a0f" + "0" * 33
    listed = read_commit_list(write(tmp_path, f"{sha}\t2025-11-21T00:00:00+00:00\tFix softmax\n"))
    row = ImportedRow("softmax", "speed", 1.0, commit=ImportedCommit(sha="7644a0f"))
    (completed,) = listed.complete(ImportedRun("table", (row,))).rows

    unlisted = ImportedRow("softmax", "speed", 1.0, commit=ImportedCommit(sha="abcdef0"))
    assert completed.commit is not None
    assert (completed.commit.sha, completed.commit.subject) == (sha, "Fix softmax")
    with pytest.raises(FileImportError, match="0 commits begin with 'abcdef0'"):
        listed.complete(ImportedRun("table", (unlisted,)))
