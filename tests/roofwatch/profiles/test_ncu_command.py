"""`roofwatch ncu` with a stand-in for Nsight Compute that runs the target on the CPU and returns a
real report.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from roofwatch.collector.profiling.ncu_count import CountedCall
from roofwatch.console.terminal import print_table
from roofwatch.model.errors import RecordError
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from roofwatch.model.results import Counters, ProfilerFinding
from roofwatch.profiles.reading import describe, exit_status, with_counters
from tests.builders import (
    CASE_ID,
    make_case,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
)
from tests.collector.profiling.every_counter import (
    EVERY_COUNTER,
    EXPECTED,
    EXPECTED_RAW,
    LOCAL_LOADS,
    SHOWN,
)
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import SUITES, Done, roofwatch

DATA = Path(__file__).parents[2] / "data" / "profiles"
GOOD = SUITES / "bench_good.py"
TOTAL = "total/n=500/float32/fwd"

_HEAD = f"""#!{sys.executable}
import json, pathlib, shutil, subprocess, sys
words = sys.argv[1:]
"""
_RUNS_THE_TARGET = """
at = words.index("--export")
report, target = words[at + 1], words[at + 2 :]
job = pathlib.Path(json.loads(target[-1])[0])
job.write_text(job.read_text().replace('"cuda"', '"cpu"'))
subprocess.run(target, check=True)
"""


def returning(report: Path) -> str:
    return f"{_HEAD}{_RUNS_THE_TARGET}shutil.copyfile({str(report)!r}, report)\n"


WORKS = returning(DATA / "sgemm_profile.ncu-rep")
LEAVES_THE_TARGET_AS_IT_IS = (
    f"{_HEAD}subprocess.run(words[words.index('--export') + 2 :], check=True)\n"
)


def ncu(stand_in: str, tmp_path: Path, *arguments: str | Path) -> Done:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    tool = folder / "ncu"
    tool.write_text(stand_in)
    tool.chmod(0o755)
    return roofwatch("ncu", *arguments, cwd=tmp_path, PATH=f"{folder}:{os.environ['PATH']}")


def test_facts_and_advice_of_a_call_are_shown(tmp_path: Path) -> None:
    pytest.importorskip(
        "ncu_report", reason="the module that reads Nsight Compute's reports is not installed"
    )
    done = ncu(WORKS, tmp_path, TOTAL, GOOD, "--output", tmp_path / "kept.ncu-rep")

    assert done.status == 0, done.error
    assert f"{TOTAL} torch on NVIDIA A10G" in done.output
    assert "11 kernels, the first 8" in done.output
    assert "achieved occupancy" in done.output
    assert "theoretical occupancy (66.7%) is limited by" in " ".join(done.output.split())
    assert (tmp_path / "kept.ncu-rep").read_bytes() == (DATA / "sgemm_profile.ncu-rep").read_bytes()


def committed_suite(folder: Path, device_name: str) -> tuple[Path, RunRecord]:
    """A suite in a repository, and a record of its only commit on a GPU."""
    suite = folder / "suite" / "bench_good.py"
    suite.parent.mkdir()
    shutil.copyfile(GOOD, suite)
    sha = commit_all(make_repository(suite.parent))
    record = make_record(
        cases=[make_case(TOTAL)],
        measurements=[make_measurement(TOTAL)],
        commit=make_commit(sha=sha),
        environment=make_environment(
            device_kind="cuda", device_name=device_name, compute_capability="8.6"
        ),
    )
    return suite, record


@pytest.mark.slow
def test_counters_replace_those_of_a_record(tmp_path: Path) -> None:
    pytest.importorskip(
        "ncu_report", reason="the module that reads Nsight Compute's reports is not installed"
    )
    suite, record = committed_suite(tmp_path, "NVIDIA A10G")
    file = tmp_path / "record.json"
    earlier = Counters(
        case_id=TOTAL, implementation="torch", function="basic", values={"duration_ns": 1.0}
    )
    record.model_copy(update={"counters": (earlier,)}).write(file)

    done = ncu(WORKS, tmp_path, TOTAL, suite, "--record", file, "--json")

    assert done.status == 0, done.error
    (call,) = done.parsed["calls"]
    assert (call["outcome"], call["implementation"], len(call["counters"])) == ("ok", "torch", 11)
    assert call["command"][1:3] == ["--target-processes", "application-only"]
    kept = RunRecord.read(file).counters
    assert [(each.function, each.launch_index) for each in kept][:2] == [
        ("basic", 0),
        ("gmem_coalesce", 1),
    ]
    assert len(kept) == 11
    assert kept[0].values["duration_ns"] == 10_777_184


@pytest.fixture(scope="module")
def counted_record(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RunRecord]:
    """What `ncu --record` prints of a report with every counter, and the record then."""
    pytest.importorskip(
        "ncu_report", reason="the module that reads Nsight Compute's reports is not installed"
    )
    folder = tmp_path_factory.mktemp("counted")
    suite, record = committed_suite(folder, "NVIDIA H200")
    file = folder / "record.json"
    record.write(file)
    done = ncu(returning(EVERY_COUNTER), folder, TOTAL, suite, "--record", file)
    assert done.status == 0, done.error
    return done.output, RunRecord.read(file)


@pytest.mark.parametrize("title", SHOWN)
def test_a_counter_that_engineers_expect_is_printed(
    title: str, counted_record: tuple[str, RunRecord]
) -> None:
    output, _ = counted_record

    assert re.search(rf"│ {title} +│ +{re.escape(SHOWN[title])} │", output)


def test_a_raw_name_is_printed_as_nsight_compute_writes_it(
    counted_record: tuple[str, RunRecord],
) -> None:
    assert re.search(rf"│ {re.escape(LOCAL_LOADS)} +│ +96 │", counted_record[0])


def test_every_counter_is_in_the_record(counted_record: tuple[str, RunRecord]) -> None:
    (kept,) = counted_record[1].counters
    stored = {name: kept.values.get(name) for name in EXPECTED | EXPECTED_RAW}

    assert stored == pytest.approx(EXPECTED | EXPECTED_RAW)


def test_a_failing_kernel_is_an_outcome(tmp_path: Path) -> None:
    done = ncu(WORKS, tmp_path, "raises/*/fwd", SUITES / "bench_failing.py")

    assert done.status == 1
    assert (
        "raises/n=64/float32/fwd torch: crashed: IndexError: index 1000 is out of bounds"
        in done.error
    )


@pytest.mark.slow
def test_a_machine_without_a_gpu_is_reported(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch sees a GPU on this machine")
    done = ncu(LEAVES_THE_TARGET_AS_IT_IS, tmp_path, TOTAL, GOOD)

    assert done.status == 2
    assert "unsupported: torch sees no GPU here" in done.error


def test_a_missing_nsight_compute_is_reported(tmp_path: Path) -> None:
    if (
        list(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))
        or Path("/usr/local/cuda/bin/ncu").exists()
    ):
        pytest.skip("Nsight Compute is installed on this machine")
    done = roofwatch("ncu", TOTAL, GOOD, cwd=tmp_path, PATH=str(tmp_path))

    assert done.status == 2
    assert "Nsight Compute is not installed" in done.error


@pytest.fixture
def described_counters(capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed of two stalls and two rules."""
    counters = Counters(
        case_id=CASE_ID,
        implementation="triton",
        function="a_kernel",
        values={"stall_wait_share": 0.2, "stall_long_scoreboard_share": 0.6},
        findings=(
            ProfilerFinding(
                rule="B", message="Issue more.", estimated_speedup=0.9, is_estimate_of_a_part=True
            ),
            ProfilerFinding(rule="A", message="Load more at once.", estimated_speedup=0.31),
        ),
    )
    for part in describe([CountedCall(CASE_ID, "triton", ("ncu",), (counters,))]):
        if not isinstance(part, str):
            print_table(part)
    return capsys.readouterr().out


def test_the_longest_stall_comes_first(described_counters: str) -> None:
    assert re.search(
        r"waits for data from device memory, L2 or L1 +│ +60.0% │\n.*fixed latency.*│ +20.0% │",
        described_counters,
    )


def test_an_estimate_of_the_whole_kernel_comes_before_one_of_a_part(
    described_counters: str,
) -> None:
    assert described_counters.index("31%") < described_counters.index("90% of a part")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["*"], r"\* matches \d+ cases; name one: "),
        (["gone"], "no case matches gone; a case ID is for example "),
        ([TOTAL, "-i", "cuda"], "no implementation matches cuda; there are torch"),
    ],
)
def test_an_ambiguous_or_unknown_case_is_refused(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = ncu(WORKS, tmp_path, arguments[0], GOOD, *arguments[1:])
    assert done.status == 2
    assert re.search(message, " ".join(done.error.split()))


def make_call(
    case_id: str = CASE_ID, *, device_name: str | None = None, outcome: Outcome = Outcome.OK
) -> CountedCall:
    if outcome is not Outcome.OK:
        return CountedCall(case_id, "torch", ("ncu",), (), device_name, outcome, "it ended so")
    counters = Counters(case_id=case_id, implementation="torch", function="k", values={"a": 1.0})
    return CountedCall(case_id, "torch", ("ncu",), (counters,), device_name)


def test_a_record_of_another_commit_device_or_case_is_refused() -> None:
    record = make_record(measurements=[make_measurement()])

    with pytest.raises(RecordError, match="check out that commit"):
        with_counters(record, make_commit(9), [make_call()], name="record.json")
    with pytest.raises(RecordError, match="the counters are of NVIDIA A10G"):
        with_counters(
            record, record.commit, [make_call(device_name="NVIDIA A10G")], name="record.json"
        )
    with pytest.raises(RecordError, match="has no case k/n=1"):
        with_counters(record, record.commit, [make_call("k/n=1/float32/fwd")], name="record.json")


def test_the_exit_status_separates_failures_from_unsupported_machines() -> None:
    assert exit_status([make_call()]) == 0
    assert exit_status([make_call(), make_call(outcome=Outcome.UNSUPPORTED)]) == 2
    assert (
        exit_status([make_call(outcome=Outcome.CRASHED), make_call(outcome=Outcome.UNSUPPORTED)])
        == 1
    )
