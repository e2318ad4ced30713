"""The steps of `bench/gpu_evidence.py`: commands, limits, resumption and the archive."""

import json
import os
import random
import signal
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch
import typer

from bench.gpu_archive import read_archive, write_archive
from bench.gpu_contact import contact, time_launches
from bench.gpu_evidence import carry_predictions, collect, main, run_step
from bench.gpu_plan import PREDICTIONS, EvidenceStep, steps
from roofwatch.cli.main import app
from roofwatch.collector.device.nvml import NvmlError
from roofwatch.kernels.registry import find_kernel
from roofwatch.model.machine import Ceiling
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.timing_method import TimingMethod
from tests.builders import make_measurement, make_record

CEILINGS = [Ceiling(resource="memory", level="dram", per_s=1e9, method="a copy")]


def test_every_command_is_accepted_by_the_command_line(tmp_path: Path) -> None:
    case_id = "softmax/n=8/float32/fwd"
    names = ("memory_copy", "softmax", "rms_norm", "matmul", "attention", "w4a16_matmul")
    record = make_record(
        measurements=[make_measurement(f"{name}/n=8/float32/fwd") for name in names]
    )
    record.write(tmp_path / "headlines.json.gz")
    commands = [step.command(tmp_path) for step in steps("cuda")]

    ours = [words[3:] for words in commands if words[1:3] == ["-m", "roofwatch"]]
    assert len(ours) == 20
    for words in ours:
        commands_of_app = typer.main.get_command(app)
        command = commands_of_app.get_command(None, words[0])  # type: ignore[attr-defined]
        command.make_context(words[0], list(words[1:]))
    assert ["ncu", case_id, "--record", str(tmp_path / "headlines.json.gz"), "--json"] in ours


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("print('{}')", None),
        ("raise SystemExit(3)", "exit status 3; see made.log"),
        ("while True: pass", "not done after 1 s; repeat the command"),
    ],
)
def test_a_step_leaves_its_file_or_a_reason(
    program: str,
    failure: str | None,
    tmp_path: Path,
) -> None:
    step = EvidenceStep("made.json", lambda _: [sys.executable, "-c", program, "--json"])

    is_endless = program.startswith("while")
    why = run_step(step, tmp_path, seconds=1.0 if is_endless else 60.0)

    assert (tmp_path / "made.json").exists() == (failure is None)
    assert why == failure


def test_each_step_ends_at_its_own_limit_and_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_s: dict[str, float] = {}

    def overrun(step: EvidenceStep, _: Path, seconds: float) -> str:
        given_s[step.name] = seconds
        return "not done"

    monkeypatch.setattr("bench.gpu_evidence.run_step", overrun)
    made_steps = [
        EvidenceStep("short.json", lambda _: [], limit_s=5.0),
        EvidenceStep("long.json", lambda _: [], limit_s=10_000.0),
    ]

    failures = collect(
        missing_steps=made_steps,
        folder=tmp_path,
        seconds=100.0,
        archive=None,
    )

    assert given_s["short"] == 5.0
    assert 5.0 < given_s["long"] <= 100.0
    assert failures == {"short": "not done", "long": "not done"}


def process_counts_of_tests(folder: Path) -> dict[str, str]:
    """How many processes each step of tests has; 0 for one at a time."""
    process_counts = {}
    for step in steps("cuda"):
        if step.test_count:
            words = step.command(folder)
            process_counts[step.name] = words[words.index("-n") + 1]
    return process_counts


def test_tests_that_measure_time_run_one_at_a_time(tmp_path: Path) -> None:
    process_counts = process_counts_of_tests(tmp_path)

    alone = {name for name, count in process_counts.items() if count == "0"}
    assert alone == {"tests-collector-device", "tests-collector-timing"}


def test_other_tests_run_two_at_a_time(tmp_path: Path) -> None:
    # each keeps up to 36 GB of 139
    assert set(process_counts_of_tests(tmp_path).values()) == {"0", "2"}


def test_a_step_whose_record_is_missing_costs_only_itself(tmp_path: Path) -> None:
    counters = next(step for step in steps("cuda") if step.name == "counters-matmul")

    why = run_step(counters, tmp_path, seconds=60.0)

    assert why is not None
    assert "headlines.json.gz: cannot be read" in why


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_ends_at_once_with_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_evidence", str(tmp_path / "results")])

    status = main()

    assert status == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "finds no GPU on this machine" in message
    assert not (tmp_path / "results").exists()


def test_an_archive_continues_in_an_empty_folder(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    elsewhere = tmp_path / "elsewhere"
    (folder / "noise").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "first.json").write_text("{}")
    (folder / "noise" / "floor.json").write_text("[]")
    archive = tmp_path / "evidence.tar.gz"

    assert write_archive(folder, archive) == []
    read_archive(archive, elsewhere)
    (elsewhere / "first.json").write_text("newer")
    read_archive(archive, elsewhere)

    assert (elsewhere / "noise" / "floor.json").read_text() == "[]"
    assert (elsewhere / "first.json").read_text() == "newer"


def test_the_largest_file_is_left_out_of_an_archive_that_grows_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.gpu_archive.MAX_ARCHIVE_BYTES", 10_000)
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "first.json").write_text("{}")
    (folder / "trace.json").write_bytes(random.Random(0).randbytes(20_000))

    assert write_archive(folder, tmp_path / "evidence.tar.gz") == ["trace.json"]
    with tarfile.open(tmp_path / "evidence.tar.gz") as packed:
        assert packed.getnames() == ["first.json"]


def test_a_step_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    child_file = tmp_path / "child"
    child = (
        f"import os, signal; open({str(child_file)!r}, 'w').write(str(os.getpid())); signal.pause()"
    )
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    step = EvidenceStep("made.json", lambda _: [sys.executable, "-c", program])

    seconds = 1.0
    while not child_file.exists():  # a loaded machine starts Python slowly
        assert run_step(step, tmp_path, seconds) is not None
        seconds *= 2

    pid = int(child_file.read_text())
    deadline = time.monotonic() + 10
    # a killed process is gone a little after the signal
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    was_running = is_running(pid)
    if was_running:
        os.kill(pid, signal.SIGKILL)
    assert not was_running


def is_running(pid: int) -> bool:
    """Whether a process runs; one that was killed and not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_call_on_another_machine_does_what_is_missing_and_first_what_never_failed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "log"

    def step(name: str, *, needs: str) -> EvidenceStep:
        program = (
            f"open({str(log)!r}, 'a').write('{name} '); import pathlib; "
            f"print('{{}}' if pathlib.Path({str(tmp_path)!r}, {needs!r}).exists() else 'failed')"
        )
        return EvidenceStep(f"{name}.json", lambda _: [sys.executable, "-c", program, "--json"])

    made_steps = [step("works", needs=""), step("fails_once", needs="repaired")]
    archive = tmp_path / "evidence.tar.gz"

    def call(folder: str, *more: EvidenceStep) -> int:
        monkeypatch.setattr("bench.gpu_evidence.steps", lambda _: [*made_steps, *more])
        options = [str(tmp_path / folder), "--device", "cpu", "--archive", str(archive)]
        monkeypatch.setattr(sys, "argv", ["gpu_evidence", *options])
        return main()

    assert call("first_machine") == 1
    assert json.loads(capsys.readouterr().out) == {
        "fails_once": "exit status 0; see fails_once.log"
    }
    (tmp_path / "repaired").touch()
    assert call("second_machine", step("is_new", needs="")) == 0

    assert log.read_text().split() == ["works", "fails_once", "is_new", "fails_once"]
    assert archive.stat().st_size < 16 * 10**6


def test_predictions_of_another_machine_are_taken_over_once(tmp_path: Path) -> None:
    bundle, folder = tmp_path / "bundle", tmp_path / "results"
    bundle.mkdir()
    folder.mkdir()
    carry_predictions(bundle, folder)
    assert list(folder.iterdir()) == []

    (bundle / PREDICTIONS).write_text("[1]")
    carry_predictions(bundle, folder)
    (bundle / PREDICTIONS).write_text("[2]")
    carry_predictions(bundle, folder)

    assert (folder / PREDICTIONS).read_text() == "[1]"


def test_a_timer_that_fails_costs_only_its_own_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    methods = [TimingMethod(timer, CacheState.HOT) for timer in (Timer.PERF_COUNTER, Timer.CUPTI)]
    monkeypatch.setattr("bench.gpu_contact.possible_methods", lambda *_, **__: methods)

    times_by_launch = time_launches("cpu")

    assert list(times_by_launch) == [
        "add of one number",
        "copy of 65536 numbers",
        "matmul of 64^3",
    ]
    for times in times_by_launch.values():
        assert isinstance(times["perf_counter"], float)
        assert str(times["cupti"]).startswith("TimerError: ")


def test_the_first_contact_shows_the_machine_without_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.gpu_contact.time_launches", lambda _: {"copy": {"cupti": 1_000.0}})
    monkeypatch.setattr("bench.gpu_contact.measure_ceilings", lambda *_: iter(CEILINGS))

    def unavailable(_name: str | None) -> None:
        raise NvmlError("missing", "NVML cannot be used")

    monkeypatch.setattr("bench.gpu_contact.NvmlDevice", unavailable)

    document = contact("cpu")

    assert document["environment"]["torch_version"] == torch.__version__
    assert document["nvml"] == "NvmlError: NVML cannot be used"
    assert [ceiling["per_s"] for ceiling in document["ceilings"]] == [CEILINGS[0].per_s]
    assert document["times"] == {"copy": {"cupti": 1_000.0}}


def test_the_first_counted_case_is_one_of_the_suite(tmp_path: Path) -> None:
    counters = next(step for step in steps("cuda") if step.name == "counters-first")
    words = counters.command(tmp_path)
    case_id = words[words.index("ncu") + 1]

    spec = find_kernel(case_id.partition("/")[0])

    assert case_id in [case.id for case in spec.cases]
    assert words[words.index("--implementation") + 1] in spec.implementations
