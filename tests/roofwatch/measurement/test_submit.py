"""Attacks and honest candidates of tests/data/submit, judged for real."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roofwatch.ci.submission import MAX_CONFIRMATIONS, SubmissionVerdict
from roofwatch.measurement.submissions import Request, ledger
from roofwatch.measurement.submit import submit
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import roofwatch

CANDIDATES = Path(__file__).parents[2] / "data" / "submit"
SPEC = "bench_candidates.py"
INCORRECT, INVALID = SubmissionVerdict.INCORRECT, SubmissionVerdict.INVALID
ATTACKS = {
    "answers_twice": INVALID,
    "cache_by_shape": INCORRECT,
    "exits": INCORRECT,
    "fixes_a_number": INCORRECT,
    "forges_answer": INVALID,
    "low_precision": INCORRECT,
    "only_listed_shapes": INCORRECT,
    "replaces_runner": INVALID,
    "right_at_first": INCORRECT,
    "thread_after_return": INCORRECT,
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFWATCH_DATA_DIR", str(tmp_path / "data"))
    folder = make_repository(tmp_path / "repository")
    shutil.copy(CANDIDATES / SPEC, folder)
    commit_all(folder)
    return folder


def request(repository: Path, name: str, *, kernel: str = "centred", budget_s: float = 50.0) -> Request:
    candidate = repository / "candidate.py"
    shutil.copyfile(CANDIDATES / f"{name}.py", candidate)
    return Request(candidate, repository / SPEC, kernel=kernel, budget_s=budget_s)


def test_a_changed_spec_is_invalid_and_the_ledger_keeps_it(repository: Path) -> None:
    (repository / SPEC).write_text((repository / SPEC).read_text() + "centred.tolerances = None\n")

    result = submit(request(repository, "honest_faster"))

    assert result.verdict is INVALID
    assert [found["case"] for found in result.evidence] == [SPEC]
    assert [(entry["verdict"], entry["error_rate"]) for entry in ledger().entries()] == [("invalid", 0.0)]
    assert result.budget["submissions_left"] == MAX_CONFIRMATIONS


def test_a_second_submission_names_its_parent(repository: Path) -> None:
    (repository / SPEC).write_text((repository / SPEC).read_text() + "# changed\n")
    for name in ("honest_faster", "honest_same"):
        submit(request(repository, name))

    first, second = ledger().entries()

    assert first["parent"] is None
    assert second["parent"] == first["hash"] != second["hash"]


def test_an_unknown_kernel_is_an_error_that_lists_the_known_ones(repository: Path) -> None:
    shutil.copyfile(CANDIDATES / "honest_faster.py", repository / "candidate.py")
    done = roofwatch("submit", "candidate.py", "--spec", SPEC, "--kernel", "centered", cwd=repository)

    assert done.status == 2
    assert "centred, accumulate" in done.error


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_rejected(repository: Path, name: str) -> None:
    result = submit(request(repository, f"attack_{name}"))

    assert result.verdict is ATTACKS[name], result.reason
    assert all(found["message"] and found["repeat"] for found in result.evidence)


@pytest.mark.slow
def test_a_hang_costs_the_budget_and_nothing_else(repository: Path) -> None:
    result = submit(request(repository, "attack_hangs", budget_s=15.0))

    assert result.verdict.exit_status == 2, result.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kernel"), [("honest_faster", "centred"), ("honest_slower", "centred"), ("honest_in_place", "accumulate")]
)
def test_an_honest_candidate_is_not_rejected(repository: Path, name: str, kernel: str) -> None:
    candidate = request(repository, name, kernel=kernel).candidate
    arguments = ("--spec", SPEC, "--kernel", kernel, "--budget", "12", "--json")
    done = roofwatch("submit", candidate, *arguments, cwd=repository)

    judged = done.parsed
    assert judged["verdict"] not in {"incorrect", "invalid", "error"}, judged["reason"]
    assert done.status == SubmissionVerdict(judged["verdict"]).exit_status
    if judged["verdict"] != "inconclusive":  # a noisy machine may need more time than this
        assert judged["effect"]["interval"][0] <= judged["effect"]["ratio"] <= judged["effect"]["interval"][1]
    assert judged["checks"]["verified"] > 0
    assert not (name == "honest_slower" and judged["verdict"] == "faster")
