"""The steps of `bench/gpu_evidence.py`, and its page of targets."""

import sys
from pathlib import Path

import pytest
import typer

from bench.gpu_evidence import Step, run_step, steps
from bench.gpu_page import compare_timers, measured_targets, page
from roofwatch.cli.main import app
from roofwatch.collector.record.record import RunRecord
from tests.builders import CASE_ID, make_blocks, make_case, make_measurement, make_record


def run(*medians_ns: float) -> RunRecord:
    """A run of one case with a block for each median."""
    return make_record(measurements=[make_measurement(blocks=make_blocks(medians_ns))])


def test_every_command_is_accepted_by_the_command_line(tmp_path: Path) -> None:
    case_id = "softmax/n=8/float32/fwd"
    names = ("memory_copy", "softmax", "rms_norm", "matmul", "attention", "w4a16_matmul")
    ids = {name: f"{name}/n=8/float32/fwd" for name in names}
    make_record(
        measurements=[make_measurement(case_id=case_id) for case_id in ids.values()],
        cases=tuple(make_case(case_id, kernel=name) for name, case_id in ids.items()),
    ).write(tmp_path / "quick.json.gz")
    commands = [step.command(tmp_path) for step in steps("cuda")]

    ours = [words[3:] for words in commands if words[1:3] == ["-m", "roofwatch"]]
    assert len(ours) == 3 + 1 + 1 + 3 + 6 + 1 + 1
    for words in ours:
        command = typer.main.get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
        command.make_context(words[0], list(words[1:]))
    assert ["ncu", case_id, "--record", str(tmp_path / "quick.json.gz"), "--json"] in ours


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("print('{}')", None),
        ("raise SystemExit(3)", "exit status 3; see made.log"),
        ("while True: pass", "TimeoutExpired"),
    ],
)
def test_a_step_leaves_its_file_or_a_reason(program: str, failure: str | None, tmp_path: Path) -> None:
    step = Step("made", "made.json", lambda _: [sys.executable, "-c", program, "--json"])

    why = run_step(step, tmp_path, seconds=1.0 if failure == "TimeoutExpired" else 60.0)

    assert (tmp_path / "made.json").exists() == (failure is None)
    assert why == failure or (failure is not None and why is not None and why.startswith(failure))


def test_targets_compare_our_kernel_with_the_copy_and_with_its_rivals(tmp_path: Path) -> None:
    copy, norm = "memory_copy/n=8/float32/fwd", "rms_norm/n=8/float32/fwd"
    times_ns = [(copy, "torch", 100.0), (norm, "triton", 200.0), (norm, "compile", 250.0)]
    record = make_record(
        measurements=[
            make_measurement(case_id=case, implementation=name, blocks=make_blocks([ns]), bound="memory")
            for case, name, ns in times_ns
        ],
        cases=tuple(make_case(case, kernel=case.split("/")[0], memory_bytes=1_000.0) for case in (copy, norm)),
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


def test_timers_are_compared() -> None:
    rows = list(
        compare_timers({"cupti": run(1_000), "cuda_graph": make_record(measurements=[]), "cuda_event": run(1_100)})
    )

    assert rows[0] == "| case | implementation | cupti | cuda_graph | cuda_event | difference |"
    assert rows[2] == f"| {CASE_ID} | torch | 1 µs |  | 1.1 µs | 10.0% |"
