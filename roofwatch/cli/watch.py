"""The command that measures a branch by its agenda: watch."""

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import (
    EXIT_WRONG,
    AsJson,
    ProjectName,
    RunOptions,
    SuitePath,
    shared_options,
)
from roofwatch.terminal import make_table, print_result, print_table

app = typer.Typer()


@app.command()
@shared_options()
def watch(
    path: SuitePath = None,
    *,
    branch: Annotated[str, typer.Option(help="Branch to watch.")] = "main",
    commits: Annotated[
        str | None,
        typer.Option("--range", metavar="A..B", help="Only the commits after A up to B."),
    ] = None,
    records: Annotated[
        Path, typer.Option(help="Folder of all records: read, and written to.")
    ] = Path("roofwatch-records"),
    budget: Annotated[
        float, typer.Option(min=0.0, metavar="MINUTES", help="Time after which no job starts.")
    ] = 30.0,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Maximum number of jobs.")] = None,
    options: RunOptions,
    project: ProjectName = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the agenda, with reasons and minutes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a branch: new commits against the last measured one, suspicions as pairs, and the
    commit of each confirmed change.

    Repeat it for every commit or night. Exit status 1: a regression is confirmed.
    """
    from roofwatch.arguments import suite_at
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.model.agenda import JobKind
    from roofwatch.model.verdict import Verdict
    from roofwatch.watch.runner import Watch

    name = project or suite_at(path, None).project
    with ForkServer() as fork_server:
        watched = Watch(path, name, branch, options.plan(), records, fork_server, commits)
        jobs = watched.agenda()
        if not as_json:
            rows = [
                (job.kind, job.head.short_sha, f"{job.seconds / 60:.1f}", job.reason)
                for job in jobs
            ]
            print_table(make_table(("job", "commit", "minutes", "why"), rows))
        done = [] if dry_run else list(watched.run(budget_s=60 * budget, max_jobs=max_jobs))
        regressions = watched.read().regressions
        waiting = watched.agenda()
    confirmed = [
        one for one in regressions if one.is_confirmed and one.verdict is Verdict.REGRESSED
    ]
    lines = [
        f"{one.job.kind} {one.job.head.short_sha}: {one.note or f'{one.seconds:.0f} s'}"
        for one in done
    ]
    lines += [f"{one.commit.short_sha} {one.verdict}: {one.summary}" for one in confirmed]
    # a suspicion is shown with its evidence until a pair has decided it
    lines += [
        f"suspected at {job.head.short_sha}, not confirmed: {job.reason}"
        for job in waiting
        if job.kind is JobKind.CONFIRM
    ]
    document = {"agenda": jobs, "done": done, "waiting": waiting, "regressions": confirmed}
    print_result(document, *lines, as_json=as_json)
    if confirmed:
        raise typer.Exit(EXIT_WRONG)
