"""Parts of the demo, and a demo with a shortened history; `make demo` runs all sixteen commits."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from roofwatch.collector.git import run_git
from roofwatch.demo.run import DemoError, run_demo, settings_of
from roofwatch.demo.scenario import STEPS, MadeCommit, make_repository, outcomes
from roofwatch.model.history import CommitRef, RegressionState
from roofwatch.model.verdict import Verdict
from tests.builders import make_commit_ref, make_regression

# The first commit, the wrong gradient and the spill: what is found without a time that moved.
SHORT = """
from roofwatch.demo import scenario
wanted = {"Add the layers of the model", "Simplify the gradient of rms_norm",
          "Give each warp of the projection a larger tile"}
scenario.STEPS = tuple(step for step in scenario.STEPS if step.subject in wanted)
import sys
from dataclasses import replace
from pathlib import Path
from roofwatch.demo import run
run._PLAN = replace(run._PLAN, block_count=2)
raise SystemExit(run.run_demo(Path(sys.argv[1]), serve=True, port=None))
"""


def start_demo(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", SHORT, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_the_history_has_sixteen_commits_of_which_four_change_something(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "repository")
    assert len(made) == 16
    planted = [commit.step.planted for commit in made if commit.step.planted]
    assert [(one.kernel, str(one.verdict)) for one in planted] == [
        ("layer_norm", "regressed"),
        ("gated_mlp", "improved"),
        ("rms_norm", "regressed"),
        ("projection", "regressed"),
    ]
    log = run_git(tmp_path / "repository", "log", "--reverse", "--format=%H %s").splitlines()
    assert log == [f"{commit.sha} {commit.step.subject}" for commit in made]
    assert run_git(tmp_path / "repository", "status", "--porcelain") == ""
    newest = run_git(tmp_path / "repository", "log", "-1", "--format=%cI").strip()
    assert datetime.now(UTC) - datetime.fromisoformat(newest) < timedelta(days=1)
    assert make_repository(tmp_path / "again") == made


def test_the_demo_counts_a_missed_change_like_a_false_alarm() -> None:
    commits = [MadeCommit(f"{number:040x}", step) for number, step in enumerate(STEPS)]

    def at(number: int) -> CommitRef:
        return replace(make_commit_ref(number), sha=commits[number].sha)

    right = make_regression(commit=at(5), kernel="layer_norm", is_confirmed=True)
    wrong = make_regression(commit=at(3), kernel="layer_norm", is_confirmed=True)
    dismissed = make_regression(commit=at(2), kernel="layer_norm", state=RegressionState.DISMISSED)
    unsure = make_regression(
        commit=at(9), kernel="gated_mlp", verdict=Verdict.IMPROVED, is_confirmed=False
    )
    judged = outcomes(commits, [right, wrong, dismissed, unsure])
    assert [outcome.is_correct for outcome in judged] == [
        number not in {3, 9, 12, 15} for number in range(16)
    ]
    assert judged[5].is_found
    assert judged[3].false_alarms == (wrong,)


@pytest.mark.slow
def test_a_demo_after_a_killed_demo_finds_the_planted_changes(tmp_path: Path) -> None:
    folder = tmp_path / "a folder" / "demo"
    killed = start_demo(folder)
    while not list((folder / "records").glob("*.json.gz")):
        assert killed.poll() is None, killed.communicate()[0]
        with contextlib.suppress(subprocess.TimeoutExpired):
            killed.wait(timeout=0.05)  # it needs this core
    killed.send_signal(signal.SIGKILL)
    killed.communicate()

    again = start_demo(folder)
    assert again.stdout is not None
    output = ""
    address = None
    while address is None:
        line = again.stdout.readline()
        assert line, output
        output += line
        address = re.search(r"dashboard: (http://\S+)", line)
    with urllib.request.urlopen(f"{address[1]}/_stcore/health", timeout=60) as health:  # noqa: S310  our own server
        assert health.read() == b"ok"
    again.send_signal(signal.SIGINT)
    again.communicate()
    assert again.returncode == 0, output
    assert output.count("found") >= 2
    assert "every planted change found, no false alarm" in output
    for side in ("run", "head"):
        names = [file.name for file in (folder / "records").glob(f"new-*-{side}-*.json.gz")]
        shas = [name.split("-")[1] for name in names]
        assert len(set(shas)) == len(shas) >= 1, "no commit is measured again after the kill"
    comment = (folder / "comment.md").read_text()
    assert "_projection_kernel" in comment
    assert "sm_90" in comment
    assert sorted(path.name for path in (tmp_path / "a folder").iterdir()) == ["demo"]
    assert run_git(folder / "repository", "worktree", "list").count("\n") == 1


def test_the_demo_is_shown_with_no_other_settings(tmp_path: Path) -> None:
    (tmp_path / "roofwatch.toml").write_text('database_url = "postgresql://other/database"')
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "roofwatch.toml").write_text(settings_of(demo))
    asked = (
        "use_settings(Path('demo')); settings = load_settings(); print(settings.data_dir, "
        "settings.database_url)"
    )
    source = (
        f"from pathlib import Path; from roofwatch.demo.run import *; from "
        f"roofwatch.configuration.settings import *; {asked}"
    )

    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env={**os.environ, "ROOFWATCH_DATABASE_URL": "postgresql://another/database"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == [str(demo / "database"), "None"]


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DemoError, match="holds other files"):
        run_demo(tmp_path, serve=False, port=None)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
