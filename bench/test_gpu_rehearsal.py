"""The plan of the GPU evidence on a virtual clock."""

from pathlib import Path

import pytest

from bench.gpu_plan import EvidenceStep, steps
from bench.gpu_rehearsal import (
    _CHECK_S,
    _COUNTERS_S,
    _FIXED_S,
    _REFERENCE_S,
    MAX_FIRST_RESULT_S,
    MAX_PLAN_S,
    WHOLE_SUITE,
    main,
    rehearse,
    until_first_result_s,
)


def test_the_plan_fits_into_the_time_of_one_loan(tmp_path: Path) -> None:
    rehearsals = [rehearse(step, tmp_path) for step in steps("cuda") if not step.is_extra]

    assert [rehearsal.name for rehearsal in rehearsals if not rehearsal.fits] == []
    assert sum(rehearsal.seconds for rehearsal in rehearsals) <= MAX_PLAN_S
    headlines = next(rehearsal for rehearsal in rehearsals if rehearsal.name == "headlines")
    assert headlines.check_count == 81
    assert headlines.block_count == 3 * headlines.check_count
    # once for the check of each case, and once for each block
    case_count = headlines.draw_count - headlines.block_count
    assert 12 <= case_count < headlines.check_count


def test_the_whole_suite_evaluates_each_reference_once(tmp_path: Path) -> None:
    step = next(step for step in steps("cuda") if step.name == WHOLE_SUITE)

    whole_suite = rehearse(step, tmp_path)

    case_count = whole_suite.draw_count - whole_suite.block_count
    assert whole_suite.parts_s["references"] == pytest.approx(case_count * _REFERENCE_S)
    assert whole_suite.parts_s["checks"] == pytest.approx(whole_suite.check_count * _CHECK_S)
    assert whole_suite.seconds == pytest.approx(sum(whole_suite.parts_s.values()))


def test_the_documented_estimate_of_the_whole_suite_is_the_planned_one(tmp_path: Path) -> None:
    step = next(step for step in steps("cuda") if step.name == WHOLE_SUITE)
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "measure.md").read_text()

    whole_suite = rehearse(step, tmp_path)

    assert f"suite has {whole_suite.check_count} results and takes about ten minutes" in page
    assert round(whole_suite.seconds / 60) == 10
    minutes = {name: seconds / 60 for name, seconds in whole_suite.parts_s.items()}
    assert round(minutes["blocks"]) == 3
    compile_minutes = minutes["torch.compile"] + minutes["torch.compile, again from its cache"]
    assert 3.5 < compile_minutes < 4
    # everything but the start is divided among GPUs
    start_s = whole_suite.parts_s["processes"]
    assert round((whole_suite.seconds - start_s) / (60 - start_s)) == 14


def test_the_documented_command_for_a_minute_takes_less_than_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "measure.md").read_text()
    (command,) = [line for line in page.splitlines() if line.startswith("roofwatch run -k softmax")]
    # what the command line takes by default
    words = ["python", "-m", *command.split(), "--preset", "survey"]

    rehearsal = rehearse(EvidenceStep("minute.json", lambda _: words), tmp_path)

    assert f"have {rehearsal.check_count} results on a GPU" in page
    assert rehearsal.seconds < 50


def test_the_plan_starts_with_a_result_within_a_minute_and_ends_with_tests(
    tmp_path: Path,
) -> None:
    promised = [step for step in steps("cuda") if not step.is_extra]

    rehearsals = [rehearse(step, tmp_path) for step in promised]
    # the last of the first result; a fifth of the minute is left for what is not known
    assert promised[1].name == "counters-first"
    assert until_first_result_s(rehearsals) <= 0.8 * MAX_FIRST_RESULT_S
    assert [step.test_count > 0 for step in promised] == sorted(
        step.test_count > 0 for step in promised
    )


def test_the_rehearsal_fails_if_the_first_result_is_late(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main() == 0
    # the first launch under `ncu` with a whole set of sections, as the other ones
    monkeypatch.setitem(_FIXED_S, "counters-first", _COUNTERS_S)

    assert main() == 1

    assert "too long: first result" in capsys.readouterr().err
