"""Tables of tuned configurations in the formats that projects ship, and what their rows compile
to.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.compile.targets import target_of_device
from roofwatch.measurement.table_rows import TableError, read_rows
from tests.roofwatch.command import SUITES, roofwatch

TABLES = Path(__file__).parents[2] / "data" / "tables"
"""Excerpts of tables that vLLM and aiter ship; their README names the sources."""
VLLM_H100 = TABLES / "E=128,N=192,device_name=NVIDIA_H100_80GB_HBM3.json"
VLLM_MI300X = TABLES / "E=128,N=1024,device_name=AMD_Instinct_MI300X.json"

ROW = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "num_warps": 4, "num_stages": 2}


def write(file: Path, document: Any) -> Path:
    file.write_text(json.dumps(document))
    return file


def test_a_table_by_batch_size_names_what_it_was_tuned_on(tmp_path: Path) -> None:
    name = "E=8,N=128,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json"
    (row,) = read_rows(write(tmp_path / name, {"triton_version": "3.4.0", "16": ROW}))

    assert (row.label, row.configuration) == ("16", ROW)
    assert (row.device, row.target) == ("AMD_Instinct_MI300X", "gfx942")
    assert row.triton_version == "3.4.0"


def test_the_cache_of_tritons_autotuner_has_its_fastest_configuration(tmp_path: Path) -> None:
    def timed(block: int, time_ms: float) -> list[Any]:
        fields = {"kwargs": {"BLOCK": block}, "num_warps": 4, "num_ctas": 1, "maxnreg": None}
        return [fields, [time_ms, 0.0, 9.0]]

    document = {"key": [256], "configs_timings": [timed(32, 0.2), timed(64, 0.1)]}
    (row,) = read_rows(write(tmp_path / "k.autotune.json", document))

    assert row.configuration == {"BLOCK": 64, "num_warps": 4}
    assert row.target is None


def test_a_best_config_file_of_inductor_is_one_row(tmp_path: Path) -> None:
    document = {"XBLOCK": 256, "num_warps": 4, "configs_hash": "ab", "found_by_coordesc": False}
    (row,) = read_rows(write(tmp_path / "cabc.best_config", document))

    assert row.configuration == {"XBLOCK": 256, "num_warps": 4}


def test_a_csv_file_has_one_row_a_line(tmp_path: Path) -> None:
    file = tmp_path / "tuned.csv"
    file.write_text("gfx,M,BLOCK_SIZE_M,us\ngfx942,1,16,4.5\ngfx950,2,32,5.5\n")
    rows = read_rows(file)

    assert [row.target for row in rows] == ["gfx942", "gfx950"]
    assert rows[1].label == "line 3"
    assert rows[0].configuration == {"gfx": "gfx942", "M": 1, "BLOCK_SIZE_M": 16, "us": 4.5}


def test_a_line_of_a_csv_file_with_too_few_cells_has_those_that_it_has(tmp_path: Path) -> None:
    # as in aiter's configs/gdr_decode_tuned.csv
    file = tmp_path / "gdr_decode_tuned.csv"
    file.write_text("arch,NUM_WARPS,duration,waves_per_eu\ngfx950,4,4.5\ngfx950,2,5.5,1,surplus\n")
    short, long = read_rows(file)

    assert short.configuration == {"arch": "gfx950", "NUM_WARPS": 4, "duration": 4.5}
    assert long.configuration["waves_per_eu"] == 1


def test_a_folder_names_the_release_of_its_tables(tmp_path: Path) -> None:
    # as in sglang's kernels/ops/gemm/csgmv_configs
    folder = tmp_path / "triton_3_5_1"
    folder.mkdir()
    name = "lora_shrink,K=1024,R=64,S=2,device=NVIDIA_H200.json"
    (row,) = read_rows(write(folder / name, {"16": ROW}))

    assert (row.device, row.target) == ("NVIDIA_H200", "sm_90")
    assert row.triton_version == "3.5.1"


def test_tables_of_vllm_have_a_row_a_batch_size_for_their_device() -> None:
    hopper = {row.label: row for row in read_rows(VLLM_H100)}
    instinct = {row.label: row for row in read_rows(VLLM_MI300X)}

    assert {row.target for row in hopper.values()} == {"sm_90"}
    assert hopper["1536"].configuration["BLOCK_SIZE_N"] == 256
    assert {row.target for row in instinct.values()} == {"gfx942"}
    assert instinct["96"].configuration["matrix_instr_nonkdim"] == 16


def test_a_table_of_aiter_has_a_row_a_line() -> None:
    rows = read_rows(TABLES / "a8w8_blockscale_tuned_gemm.csv")

    assert [row.configuration["kernelId"] for row in rows] == [8, 8, 11]
    assert rows[2].configuration["us"] == 4.0919
    # it names the number of compute units, and no device
    assert {row.target for row in rows} == {None}


@pytest.mark.parametrize("text", ["", "[1]", "{}", "{"])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)

    with pytest.raises(TableError, match=r"other\.json"):
        read_rows(file)


@pytest.mark.parametrize(
    ("device", "target"),
    [
        ("NVIDIA_H100_80GB_HBM3", "sm_90"),
        ("NVIDIA_H20-3e", "sm_90"),
        ("NVIDIA_B200", "sm_100"),
        ("NVIDIA_L40S", "sm_89"),
        ("NVIDIA_L4", "sm_89"),
        ("NVIDIA_A10", "sm_86"),
        ("NVIDIA_A100-SXM4-80GB", "sm_80"),
        ("NVIDIA_GeForce_RTX_4090", "sm_89"),
        ("NVIDIA_RTX_PRO_6000_Blackwell_Workstation_Edition", "sm_120"),
        ("AMD_Instinct_MI325X", "gfx942"),
        ("AMD_Radeon_R9700", "gfx1201"),
        ("gfx950", "gfx950"),
        ("Intel(R)_Arc(TM)_Pro_B60_Graphics", None),
    ],
)
def test_a_device_has_its_target(device: str, target: str | None) -> None:
    assert target_of_device(device) == target


@pytest.mark.slow  # compiles four configurations
def test_rows_that_lose_are_named_with_the_loss(tmp_path: Path) -> None:
    table = write(
        tmp_path / "E=8,N=128,device_name=NVIDIA_H100_80GB_HBM3.json",
        {
            "triton_version": "3.4.0",
            "1": ROW,
            "2": {**ROW, "SPLIT_K": 1},
            "4": {**ROW, "BLOCK_SIZE_M": 48},
            "8": {**ROW, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128},
        },
    )
    done = roofwatch("static", "audit-tables", SUITES / "bench_table.py", table, "--json")

    assert done.status == 1, done.error
    rows = {row["row"]["label"]: row for row in done.parsed["rows"]}
    assert {row["target"] for row in rows.values()} == {"sm_90"}
    assert rows["1"]["compiled"]["loss"] is None
    assert rows["4"]["compiled"]["loss"] == "not_compiled"
    assert rows["8"]["compiled"]["loss"] in {"does_not_fit", "spills"}
    assert "tuned with Triton 3.4.0" in rows["1"]["stale"][0]
    assert "no parameter SPLIT_K" in rows["2"]["stale"][1]


@pytest.mark.slow  # compiles seven configurations
def test_published_tables_are_compiled_for_the_devices_that_they_name() -> None:
    tables = (VLLM_H100, VLLM_MI300X, TABLES / "a8w8_blockscale_tuned_gemm.csv")
    arguments = ("--targets", "gfx950", "--json")
    done = roofwatch("static", "audit-tables", SUITES / "bench_table.py", *tables, *arguments)

    losses = {
        (row["target"], row["row"]["label"]): row["compiled"]["loss"] for row in done.parsed["rows"]
    }
    assert {label for target, label in losses if target == "sm_90"} == {"1", "64", "1536", "4096"}
    assert {label for target, label in losses if target == "gfx942"} == {"1", "96", "4096"}
    assert losses["sm_90", "4096"] is None
    assert losses["gfx942", "96"] is None
    # rows of aiter name compiled kernels: nothing in them is compiled
    lines = ("line 2", "line 3", "line 4")
    assert {losses["gfx950", line] for line in lines} == {"unknown"}
