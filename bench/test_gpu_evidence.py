"""The steps of `bench/gpu_evidence.py`, and its page of targets."""

import json
import random
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import typer

from bench.gpu_evidence import EvidenceStep, main, read_archive, run_step, steps, write_archive
from bench.gpu_page import compare_timers, measured_targets, page
from bench.kernel_bounds import Bound, bound_of
from roofwatch.cli.main import app
from roofwatch.kernels.registry import find_kernel
from roofwatch.spec import Case
from tests.builders import (
    CASE_ID,
    make_case,
    make_environment,
    make_measurement,
    make_record,
    make_static_facts,
)


def test_every_command_is_accepted_by_the_command_line(tmp_path: Path) -> None:
    case_id = "softmax/n=8/float32/fwd"
    names = ("memory_copy", "softmax", "rms_norm", "matmul", "attention", "w4a16_matmul")
    record = make_record(
        measurements=[make_measurement(f"{name}/n=8/float32/fwd") for name in names]
    )
    for name in ("first", "headlines"):
        record.write(tmp_path / f"{name}.json.gz")
    commands = [step.command(tmp_path) for step in steps("cuda")]

    ours = [words[3:] for words in commands if words[1:3] == ["-m", "roofwatch"]]
    assert len(ours) == 19
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
    program: str, failure: str | None, tmp_path: Path
) -> None:
    step = EvidenceStep("made.json", lambda _: [sys.executable, "-c", program, "--json"])

    is_endless = program.startswith("while")
    why = run_step(step, tmp_path, seconds=1.0 if is_endless else 60.0)

    assert (tmp_path / "made.json").exists() == (failure is None)
    assert why == failure


def test_tests_that_measure_time_run_one_at_a_time_and_others_two(tmp_path: Path) -> None:
    process_counts = {}
    for step in steps("cuda"):
        if step.test_count:
            words = step.command(tmp_path)
            process_counts[step.name] = words[words.index("-n") + 1]

    alone = {"tests-collector-device", "tests-collector-timing"}
    assert {name for name, count in process_counts.items() if count == "0"} == alone
    # each keeps up to 36 GB of 139
    assert set(process_counts.values()) == {"0", "2"}


def test_a_step_whose_record_is_missing_costs_only_itself(tmp_path: Path) -> None:
    counters = next(step for step in steps("cuda") if step.name == "counters-first")

    why = run_step(counters, tmp_path, seconds=60.0)

    assert why is not None
    assert "first.json.gz: cannot be read" in why


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_ends_at_once_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    monkeypatch.setattr("bench.gpu_evidence.MAX_ARCHIVE_BYTES", 10_000)
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "first.json").write_text("{}")
    (folder / "trace.json").write_bytes(random.Random(0).randbytes(20_000))

    assert write_archive(folder, tmp_path / "evidence.tar.gz") == ["trace.json"]
    with tarfile.open(tmp_path / "evidence.tar.gz") as packed:
        assert packed.getnames() == ["first.json"]


def test_targets_compare_our_kernel_with_the_copy_and_with_its_rivals(tmp_path: Path) -> None:
    copy = "memory_copy/n=8/float32/fwd"
    norm = "rms_norm/n=8/float32/fwd"
    times_ns = [
        (copy, "torch", 100.0),
        (norm, "triton", 200.0),
        (norm, "compile", 250.0),
    ]
    record = make_record(
        measurements=[
            make_measurement(case, implementation=name, median_ns=ns) for case, name, ns in times_ns
        ]
    )

    share, speed = measured_targets(tmp_path, record)

    assert (share.value, share.is_met) == (0.5, False)
    assert (speed.value, speed.is_met) == (1.25, True)
    record.write(tmp_path / "quick.json.gz")
    (tmp_path / "submit.json").write_text('{"verdict": "not_faster", "reason": "as fast"}')
    text = page(tmp_path, {"noise": "no time left"})
    assert f"| {share.text} | 0.5 | no |" in text
    assert "- noise: no time left" in text
    assert "`submit`: not_faster, as fast" in text


def test_matmul_and_attention_have_rivals_of_their_own(tmp_path: Path) -> None:
    rivals = {"matmul": ("torch", 1.0), "attention": ("sdpa_cudnn", 0.9)}
    cases = {name: quick_case(name) for name in rivals}
    measurements = []
    for name, (rival, _) in rivals.items():
        for implementation, median_ns in ((rival, 95.0), ("triton", 100.0)):
            measurements.append(
                make_measurement(cases[name].id, implementation=implementation, median_ns=median_ns)
            )
    record = make_record(
        measurements=measurements,
        cases=tuple(
            make_case(
                case.id,
                kernel=name,
                family=find_kernel(name).family,
                direction=case.direction,
            )
            for name, case in cases.items()
        ),
    )

    targets = {target.text.split("/")[0]: target for target in measured_targets(tmp_path, record)}

    assert {name: (target.value, target.limit) for name, target in targets.items()} == {
        name: (0.95, limit) for name, (_, limit) in rivals.items()
    }


def quick_case(kernel: str) -> Case:
    return next(case for case in find_kernel(kernel).cases if "quick" in case.tags)


def test_timers_are_compared() -> None:
    cupti, event = (
        make_record(measurements=[make_measurement(median_ns=ns)]) for ns in (1_000, 1_100)
    )
    rows = list(
        compare_timers(
            {"cupti": cupti, "cuda_graph": make_record(measurements=[]), "cuda_event": event}
        )
    )

    assert rows[0] == "| case | implementation | cupti | cuda_graph | cuda_event | difference |"
    assert rows[2] == f"| {CASE_ID} | torch | 1 µs |  | 1.1 µs | 10.0% |"


@pytest.mark.parametrize(
    ("kernel", "instructions", "roof", "in_flight_bytes", "predicted"),
    [
        # 2048 threads with one load of 16 bytes each; 17,766 bytes cover the latency
        ("memory_copy", {"global_load.128": 1}, "memory", 32_768, 1.0),
        ("memory_copy", {"global_load.32": 1}, "memory", 8_192, 8_192 / 17_765),
        # two blocks' shared memory
        ("memory_copy", {"tma": 2}, "memory", 200_000, 1.0),
        ("matmul", {"tma": 2, "tensor.HGMMA": 4}, "compute", 200_000, 1.0),
        ("int8_matmul", {"tma": 2, "tensor.IGMMA": 4}, "compute", 200_000, 1.0),
        ("matmul", {"async_copy.128": 2, "tensor.HMMA": 4}, "compute", 200_000, 0.6),
    ],
)
def test_compiled_code_bounds_what_a_kernel_reaches(
    kernel: str,
    instructions: dict[str, int],
    roof: str,
    in_flight_bytes: int,
    predicted: float,
) -> None:
    spec = find_kernel(kernel)
    case = next(case for case in spec.cases if case.dtype != "float32" and "quick" in case.tags)
    facts = make_static_facts(
        case.id,
        thread_count=256,
        instructions=instructions,
        shared_bytes=100_000,
    )
    if any(kind.startswith("global_load") for kind in instructions):
        blocks = 8
    else:
        blocks = 2

    bound = bound_of(
        spec, case, facts.model_copy(update={"theoretical_occupancy": blocks * 8 / 64})
    )

    assert (bound.roof, bound.in_flight_bytes) == (roof, in_flight_bytes)
    assert bound.predicted == pytest.approx(predicted, rel=1e-3)


def test_the_page_sets_what_was_measured_beside_the_predictions_for_this_gpu(
    tmp_path: Path,
) -> None:
    bounds = [
        Bound(
            case_id=CASE_ID,
            function="kernel",
            target="sm_90",
            roof="memory",
            loads="tma",
            in_flight_bytes=1,
            needed_bytes=2,
            tensor="",
            occupancy=0.5,
            spilled_bytes=0,
            predicted=0.5,
        ),
        Bound(
            case_id=CASE_ID,
            function="kernel",
            target="sm_100",
            roof="memory",
            loads="tma",
            in_flight_bytes=1,
            needed_bytes=2,
            tensor="",
            occupancy=0.5,
            spilled_bytes=0,
            predicted=0.25,
        ),
    ]
    make_record(
        measurements=[make_measurement(implementation="triton", bound="memory", utilisation=0.4)],
        environment=make_environment(device_kind="cuda", compute_capability="9.0"),
    ).write(tmp_path / "quick.json.gz")
    (tmp_path / "bounds.json").write_text(json.dumps([asdict(bound) for bound in bounds]))

    rows = [
        line for line in page(tmp_path, {}).splitlines() if line.startswith(f"| {CASE_ID} | kernel")
    ]

    assert rows == [f"| {CASE_ID} | kernel | memory | 0.50 | 0.40 |"]
