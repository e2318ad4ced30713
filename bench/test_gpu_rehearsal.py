"""The plan of the GPU evidence on a virtual clock."""

from pathlib import Path

from bench.gpu_evidence import steps
from bench.gpu_rehearsal import MAX_PLAN_S, rehearse


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


def test_the_plan_starts_with_a_result_within_a_minute_and_ends_with_tests(
    tmp_path: Path,
) -> None:
    promised = [step for step in steps("cuda") if not step.is_extra]

    assert rehearse(promised[0], tmp_path).seconds <= 60
    assert [step.test_count > 0 for step in promised] == sorted(
        step.test_count > 0 for step in promised
    )
