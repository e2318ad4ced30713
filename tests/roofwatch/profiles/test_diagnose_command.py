"""`roofwatch diagnose`, as a user runs it."""

from pathlib import Path

import pytest

from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.model.record import RunRecord
from roofwatch.profiles.diagnosing import diagnose_record, to_lines
from tests.ci.ailments import AILMENTS, NORM
from tests.roofwatch.command import SUITES, roofwatch


def record_of(ailment: str, folder: Path) -> Path:
    path = folder / "record.json"
    AILMENTS[ailment]().write(path)
    return path


def test_a_record_is_diagnosed_in_sentences(tmp_path: Path) -> None:
    done = roofwatch("diagnose", NORM, "--record", record_of("host", tmp_path))
    assert done.status == 0, done.error
    assert "host: 110 µs: the host issues work more slowly than the device runs it" in done.output
    assert "1. the host is slower than the device (at most 4 times as fast)" in done.output
    assert "Try: Issue less work" in done.output


@pytest.fixture(scope="module")
def diagnosed_three() -> list[Diagnosis]:
    """One of which nothing is known, and two that the host holds up."""
    return [
        *diagnose_record(AILMENTS["nothing is known"](), "rms_norm", None, name="idle"),
        *diagnose_record(AILMENTS["host"](), "rms_norm", None, name="first"),
        *diagnose_record(AILMENTS["host"](), "rms_norm", None, name="second"),
    ]


def test_of_several_results_the_most_to_gain_comes_first(
    diagnosed_three: list[Diagnosis],
) -> None:
    assert next(to_lines(diagnosed_three)) == (
        f"the most to gain of 3: {NORM} triton: the host is slower than the device "
        "(at most 4 times as fast)"
    )


def test_advice_for_several_results_is_given_once(diagnosed_three: list[Diagnosis]) -> None:
    lines = list(to_lines(diagnosed_three))

    assert sum("Try: Issue less work" in line for line in lines) == 1


def test_one_result_begins_with_its_name(diagnosed_three: list[Diagnosis]) -> None:
    assert next(to_lines(diagnosed_three[1:2])) == f"{NORM} triton"


def test_a_record_is_diagnosed_for_machines(tmp_path: Path) -> None:
    path = record_of("a ceiling above the datasheet", tmp_path)
    parsed = roofwatch("diagnose", "rms_norm", "--record", path, "--json").parsed
    assert (parsed["record"], parsed["exit_status"]) == (str(path), 0)
    [diagnosis] = parsed["diagnoses"]
    assert (diagnosis["case_id"], diagnosis["implementation"], diagnosis["limit"]) == (
        NORM,
        "triton",
        "memory",
    )
    assert diagnosis["timing"]["median_ns"] == 80_000
    assert diagnosis["roof"]["bound"] == "memory"
    assert [level["level"] for level in diagnosis["roof"]["levels"]] == ["dram"]
    memory = next(each for each in diagnosis["ceilings"] if each["resource"] == "memory")
    assert (memory["measured_per_s"], memory["datasheet_per_s"]) == (5.5e12, 4.8e12)
    first = diagnosis["findings"][0]
    assert (first["rule"], first["weight"]) == ("implausible_ceilings", "doubt")
    assert all(first[key] for key in ("title", "evidence", "advice"))


@pytest.mark.parametrize(
    ("ailment", "status"),
    [
        ("wrong", 1),
        ("no room", 1),
        ("does not compile", 1),
        ("nothing is known", 2),
        ("not timed", 0),
    ],
)
def test_the_exit_status_tells_a_failure_from_an_unknown(
    tmp_path: Path, ailment: str, status: int
) -> None:
    path = record_of(ailment, tmp_path)
    assert roofwatch("diagnose", "rms_norm/*", "--record", path).status == status


def test_missing_results_are_refused_with_the_cases_of_the_record(tmp_path: Path) -> None:
    done = roofwatch("diagnose", "softmax", "-i", "cuda", "--record", record_of("host", tmp_path))
    assert done.status == 2
    assert f"record.json: has no results of softmax by cuda; it has {NORM}" in done.error


def test_a_record_and_a_suite_at_once_are_refused(tmp_path: Path) -> None:
    done = roofwatch(
        "diagnose", NORM, SUITES / "bench_good.py", "--record", record_of("host", tmp_path)
    )
    assert done.status == 2
    assert "neither a suite nor --output" in done.error


@pytest.mark.slow
def test_a_case_is_measured_and_diagnosed_where_there_is_no_gpu(tmp_path: Path) -> None:
    output = tmp_path / "out" / "record.json"
    done = roofwatch(
        "diagnose",
        "scale/n=1000/*",
        SUITES / "bench_good.py",
        "--json",
        "--device",
        "cpu",
        "--targets",
        "sm_90,gfx942",
        "-o",
        output,
    )
    assert done.status == 0, done.error
    eager, triton = done.parsed["diagnoses"]
    assert (eager["implementation"], triton["implementation"]) == ("torch", "triton")
    # a thousand elements are nothing to any machine: the call is what takes time
    assert eager["limit"] == "launch overhead"
    assert triton["timing"] is None
    assert "compiled for sm_90, gfx942: no spills" in triton["headline"]
    assert any("on a machine with a GPU" in each for each in triton["missing"])
    record = RunRecord.read(output)
    assert {case.case_id for case in record.cases} == {"scale/n=1000/float32/fwd"}
