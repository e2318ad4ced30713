"""`roofwatch tune` on kernels that run or compile here, and the file that kernels read."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from roofwatch import tuned
from roofwatch.collector.compile.target_device import pretending_driver
from roofwatch.measurement.tuned_files import write_tuned
from roofwatch.model.errors import CollectorError
from roofwatch.model.tuning import TriedConfiguration, TunedCase
from roofwatch.spec import KernelSpec, SpecError, cases
from tests.roofwatch.command import SUITES, roofwatch

CHOICES = SUITES / "bench_choices.py"


def make_tuned_case(configuration: dict[str, Any], n: int = 4096, **fields: Any) -> TunedCase:
    """A choice for sm_90 that was predicted."""
    defaults: dict[str, Any] = {
        "case_id": f"add/n={n}/float32/fwd",
        "kernel": "add",
        "shape": {"n": n},
        "dtype": "float32",
        "direction": "fwd",
        "implementation": "triton",
        "target": "sm_90",
        "evidence": "predicted",
        "tried": (
            TriedConfiguration(
                configuration=configuration, predicted_ns=1_000.0, median_ns=2_000.0
            ),
        ),
    }
    return TunedCase(**defaults | fields)


def write(file: Path, *tuned_cases: TunedCase) -> None:
    write_tuned(file, tuned_cases, command="roofwatch tune add", made_on=date(2026, 1, 2))


def test_configurations_that_are_no_better_lose_on_a_cpu(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    done = roofwatch("tune", "parts", CHOICES, "--json", "--output", file)

    assert done.status == 0, done.error
    (case,) = done.parsed["cases"]
    assert case["evidence"] == "measured"
    assert [(tried["configuration"], tried["loss"]) for tried in case["tried"]] == [
        ({"rows": 8192}, None),
        ({"rows": 64}, "slower"),
        ({"rows": 8192, "extra": 1}, "failed"),
    ]
    device = case["device"]
    assert tuned(file, kernel="parts", shape={"n": 8192}, device=device) == {"rows": 8192}


@pytest.mark.slow  # compiles four kernels
def test_without_a_gpu_a_triton_kernel_is_only_predicted() -> None:
    done = roofwatch("tune", "blocks", CHOICES, "--json", "--targets", "sm_90")

    assert done.status == 0, done.error
    (case,) = done.parsed["cases"]
    assert (case["evidence"], case["device"], case["target"]) == ("predicted", None, "sm_90")
    assert "predicted, not measured" in done.parsed["summary"]
    losses = {json.dumps(tried["configuration"]): tried["loss"] for tried in case["tried"]}
    assert losses == {
        '{"block": 1024}': None,
        '{"block": 1024, "passes": 8}': "predicted_slower",
        '{"block": 16384, "num_warps": 1}': "spills",
        '{"block": 1000}': "not_compiled",
    }


@pytest.mark.slow  # compiles four kernels
def test_configurations_of_an_autotuner_are_candidates() -> None:
    done = roofwatch("tune", "tuned", SUITES / "bench_tuned.py", "--json", "--targets", "sm_90")

    (case,) = done.parsed["cases"]
    assert case["function"] == "_add_one_kernel"
    assert {tried["configuration"]["BLOCK"] for tried in case["tried"]} == {32, 1024}


def test_a_kernel_without_configurations_is_refused() -> None:
    done = roofwatch("tune", "total", SUITES / "bench_good.py", "-i", "torch")

    assert done.status == 2
    assert "give configs=" in done.error


def test_the_nearest_shape_of_the_device_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    write(file, make_tuned_case({"block": 64}, n=1_000), make_tuned_case({"block": 512}, n=64_000))

    with pretending_driver("sm_90"):
        assert tuned(file, kernel="add", shape={"n": 2_000}) == {"block": 64}
        assert tuned(file, kernel="add", shape={"n": 40_000}) == {"block": 512}
        assert tuned(file, kernel="add", shape={"m": 40_000}) == {}
        assert tuned(file, kernel="other", shape={"n": 2_000}) == {}
    with pretending_driver("gfx942"):
        assert tuned(file, kernel="add", shape={"n": 2_000}) == {}


def test_a_measured_entry_of_the_device_comes_before_a_predicted_one(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    write(
        file,
        make_tuned_case({"block": 64}),
        make_tuned_case({"block": 256}, evidence="measured", device="NVIDIA H100"),
    )

    with pretending_driver("sm_90"):
        assert tuned(file, kernel="add", shape={"n": 4096}) == {"block": 256}
    assert tuned(file, kernel="add", shape={"n": 4096}, device="sm_90") in (
        {"block": 64},
        {"block": 256},
    )


def test_a_new_choice_replaces_only_its_entry(tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    write(file, make_tuned_case({"block": 64}), make_tuned_case({"block": 1}, target="gfx942"))
    write(file, make_tuned_case({"block": 128}))

    entries = json.loads(file.read_text())["entries"]
    assert [(entry["target"], entry["configuration"]) for entry in entries] == [
        ("gfx942", {"block": 1}),
        ("sm_90", {"block": 128}),
    ]
    assert entries[0]["made_by"] == "roofwatch tune add"
    assert entries[0]["made_on"] == "2026-01-02"


def test_another_file_is_neither_overwritten_nor_read(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"a": 1}')

    with pytest.raises(CollectorError, match="no table of tuned configurations"):
        write(file, make_tuned_case({"block": 64}))
    with pytest.raises(SpecError, match="no table of tuned configurations"):
        tuned(file, kernel="add", shape={"n": 1}, device="sm_90")
    assert tuned(tmp_path / "none.json", kernel="add", shape={"n": 1}, device="sm_90") == {}


def test_a_configuration_without_a_parameter_is_refused() -> None:
    spec = KernelSpec(
        name="add",
        inputs=lambda _case, _make: {},
        reference=lambda: None,
        cases=cases(shapes=[{"n": 1}]),
        flop_count=lambda _case: 0.0,
        memory_bytes=lambda _case: 0.0,
    )
    with pytest.raises(SpecError, match="no parameter 'block'"):
        spec.implementation("torch", configs=[{"block": 1}])(lambda x: x)
