"""The commit of a spill or of a wrong result is found by compiling and checking commits."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.bisection.commits import list_commits
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.bisections import read_newest_bisection
from roofwatch.model.record import RunRecord
from roofwatch.model.triage import BisectionState
from roofwatch.watch.facts import FactSearch, fact_lines, search_and_store
from tests.git_repository import commit_file, make_repository
from tests.roofwatch.command import roofwatch
from tests.roofwatch.watch.layers_repository import STEPS, commit_step

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]


def search(folder: Path, output: Path, good: str, case_id: str, server: ForkServer) -> FactSearch:
    implementation = "triton" if case_id.startswith("tile") else "torch"
    return FactSearch(
        path=folder,
        project="layers",
        subject=(case_id, implementation),
        commits=list_commits(folder, good, "HEAD"),
        plan=RunPlan(device="cpu", targets=("sm_90",)),
        output=output,
        fork_server=server,
        on_progress=lambda _: None,
    )


def test_changes_that_need_no_timing_are_located_without_it(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "layers")
    good = commit_step(folder, STEPS[0])
    commit_file(folder, "notes.md", "one\n", "Write notes")
    wrong = commit_step(folder, next(step for step in STEPS if "Halve" in step.subject))
    commit_file(folder, "other.py", "OTHER = 1\n", "Add a module")
    spilled = commit_step(folder, next(step for step in STEPS if "one warp" in step.subject))
    commit_file(folder, "other.py", "OTHER = 2\n", "Change the module")

    with ForkServer() as server:
        gradient = search(folder, tmp_path / "a", good, "scale/n=512/float32/bwd", server)
        (wrong_result,) = gradient.run()
        again = gradient.run()
        spill = search(folder, tmp_path / "b", good, "tile/n=128/float32/fwd", server)
        (spilling,) = spill.run()

    assert wrong_result.commit.sha == wrong
    assert not wrong_result.is_range
    assert again == (wrong_result,)
    assert spilling.commit.sha == spilled
    assert fact_lines([spilling])[0].startswith(f"{spilled[:8]} regressed: Give tile one warp")
    records = [RunRecord.read(file) for file in (tmp_path / "b").glob("*.gz")]
    assert all(not record.measurements or not record.measurements[0].blocks for record in records)
    # the ends, the only commit that changed the sources of the kernel, and the one before it
    assert len(records) == 4


def test_a_launcher_that_copies_its_input_is_located_by_counting(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "layers")
    good = commit_step(folder, STEPS[0])
    commit_file(folder, "other.py", "OTHER = 1\n", "Add a module")
    launcher = (folder / "bench_tile.py").read_text()
    copying = launcher.replace("    y = torch.empty_like(x)", "    y = torch.empty_like(x.clone())")
    copied = commit_file(folder, "bench_tile.py", copying, "Copy the input of tile")
    commit_file(folder, "other.py", "OTHER = 2\n", "Change the module")

    series = "tile/n=128/float32/fwd/triton"
    ends = ("--good", good, "--bad", "HEAD")
    options = ("--untimed", "--targets", "sm_90", "--device", "cpu", "--output", tmp_path / "a")
    done = roofwatch("bisect", folder, "--series", series, *ends, *options, "--json", cwd=folder)

    assert copying != launcher
    assert done.status == 0, done.error
    (change,) = done.parsed["regressions"]
    assert change["commit"]["sha"] == copied
    metrics = {point["series"]["metric"]: point for point in change["change_points"]}
    assert set(metrics) == {"moved_bytes", "peak_bytes"}
    moved = metrics["moved_bytes"]
    assert moved["after"] == moved["before"] + 2 * 4 * 128 * 128
    assert "bytes moved in torch" in done.parsed["summary"]


def test_the_search_of_a_wrong_result_is_stored_step_by_step(tmp_path: Path, store: Engine) -> None:
    folder = make_repository(tmp_path / "layers")
    good = commit_step(folder, STEPS[0])
    commit_file(folder, "other.py", "OTHER = 1\n", "Add a module")
    wrong = commit_step(folder, next(step for step in STEPS if "Halve" in step.subject))
    commit_file(folder, "other.py", "OTHER = 2\n", "Change the module")
    regression_id = uuid4()
    store_url = store.url.render_as_string(hide_password=False)

    with ForkServer() as server:
        asked = search(folder, tmp_path / "a", good, "scale/n=512/float32/bwd", server)
        (change,) = search_and_store(asked, store_url, regression_id)

    with Session(store) as session:
        stored = read_newest_bisection(session, regression_id)
    assert stored is not None
    assert stored.state is BisectionState.FOUND
    assert stored.answer is not None
    assert stored.answer.first.sha == stored.answer.last.sha == wrong == change.commit.sha
    assert stored.answer.relative_change is None
    # the only commit that changed the sources of the kernel, and the one before it
    assert [step.note for step in stored.progress.steps] == ["compiled and checked"] * 2
    probabilities = {known.commit.sha: known.probability for known in stored.progress.commits}
    assert probabilities.pop(wrong) == 1.0
    assert set(probabilities.values()) == {0.0}
    assert "Halve the gradient" in stored.note
