"""Run the demo: measure, store, analyse, report and show sixteen commits."""

from __future__ import annotations

from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from roofwatch.ci.report.comment import to_markdown
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.engine.session import open_store
from roofwatch.db.projects import delete_project
from roofwatch.demo.folder import DemoFolder, claimed
from roofwatch.demo.measuring import PROJECT, Measuring
from roofwatch.demo.outcome import CommitOutcome, outcomes, outcomes_table
from roofwatch.demo.scenario import make_repository
from roofwatch.terminal import console, print_note, print_table, write_text


def run_demo(root: Path, *, serve: bool, port: int | None) -> int:
    """Run the demo in its own folder, replacing an earlier demo.

    Returns:
        0 if every planted change was found and no other commit was reported, else 1.

    Raises:
        DemoError: the folder holds other files, or another demo runs in it.
    """
    with claimed(root.absolute()) as folder, open_store(folder=folder.database) as engine:
        delete_project(engine, PROJECT)
        with _progress() as bar:
            judged = _measure_and_judge(folder, engine, bar)
        print_table(outcomes_table(judged))
        all_well = all(outcome.is_correct for outcome in judged)
        print_note(
            "every planted change found, no false alarm"
            if all_well
            else "a planted change was missed, or a false alarm: see the table"
        )
        print_note(f"pull-request comment for the last commit: {folder.comment}")
        if serve:
            _serve(folder, port)
        else:
            print_note(f"show it: ROOFWATCH_DATA_DIR={folder.database} roofwatch dashboard")
    return 0 if all_well else 1


def _measure_and_judge(folder: DemoFolder, engine: Engine, bar: Progress) -> list[CommitOutcome]:
    commits = make_repository(folder.repository)
    task = bar.add_task("loading torch and Triton", total=len(commits) + 2)
    with ForkServer(folder.worker_environment) as fork_server:
        fork_server.warm_up()
        measuring = Measuring(folder, engine, fork_server)
        for number, commit in enumerate(commits, start=1):
            bar.update(task, description=f"commit {number} of {len(commits)}: {commit.step.subject}")
            measuring.measure_commit(commit, f"{number:02}-{commit.sha[:12]}")
            bar.advance(task)
        bar.update(task, description="analysing the history, confirming suspected changes")
        regressions = measuring.confirm_suspicions()
        bar.advance(task)
        bar.update(task, description="comparing the last commit with its base, for the pull-request comment")
        judgement = measuring.judge_pull_request(commits[-2], commits[-1])
        write_text(folder.comment, to_markdown(judgement))
        bar.advance(task)
    return outcomes(commits, regressions)


def _serve(folder: DemoFolder, port: int | None) -> None:
    from roofwatch.dashboard.serve import serve

    serve(
        port=port,
        data_dir=folder.database,
        database_url=None,
        on_ready=lambda address: print_note(f"dashboard: {address}   (stop with Ctrl-C)"),
    )


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console(),
    )
