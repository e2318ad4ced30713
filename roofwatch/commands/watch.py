"""The command that measures a branch by its agenda: watch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from roofwatch.commands.options import (
    AsJson,
    ProjectName,
    RunOptions,
    SuiteFrom,
    SuitePath,
    shared_options,
)
from roofwatch.commands.queueable import queueable
from roofwatch.console.terminal import EXIT_WRONG, make_table, print_result, print_table, progress

if TYPE_CHECKING:
    from roofwatch.ci.forges.client import GitHubRepository
    from roofwatch.ci.watching.news import News
    from roofwatch.model.agenda import Job
    from roofwatch.watch.runner import Done, Watch

app = typer.Typer()


@app.command()
@queueable
@shared_options()
def watch(
    path: SuitePath = None,
    *,
    branch: Annotated[
        str, typer.Option(help="Branch to watch, such as main or origin/main.")
    ] = "main",
    commits: Annotated[
        str | None,
        typer.Option("--range", metavar="A..B", help="Only the commits after A up to B."),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BASE..HEAD", help="Measure these two commits of the branch first; repeatable."
        ),
    ] = None,
    records: Annotated[
        Path, typer.Option(help="Folder of all records: read, and written to.")
    ] = Path("roofwatch-records"),
    budget: Annotated[
        float, typer.Option(min=0.0, metavar="MINUTES", help="Time after which no job starts.")
    ] = 30.0,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Maximum number of jobs.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Repeat for ever, and fetch new commits.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Pause between two rounds.")
    ] = 60.0,
    options: RunOptions,
    suite_from: SuiteFrom = "each",
    everything: Annotated[
        bool, typer.Option("--all", help="Also kernels whose sources did not change.")
    ] = False,
    project: ProjectName = None,
    issues: Annotated[
        bool,
        typer.Option(
            "--issues",
            help="Open an issue on GitHub for each confirmed regression, and close it on recovery.",
        ),
    ] = False,
    label: Annotated[
        list[str] | None, typer.Option(help="Label of these issues; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the agenda, with reasons and minutes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a branch: new commits against the last measured one, suspicions as pairs, and the
    commit of each confirmed change.

    Repeat it for every commit or night. Exit status 1: this run found a regression.
    """
    import time

    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.configuration.arguments import suite_at
    from roofwatch.watch.branch import Branch
    from roofwatch.watch.ledger import only_watch
    from roofwatch.watch.pairs import parse_pair
    from roofwatch.watch.runner import Watch

    repository: GitHubRepository | None = None
    # refused before anything is measured
    if issues:
        from roofwatch.watch.issues import repository_of_job

        repository = repository_of_job()
    pairs = tuple(parse_pair(text) for text in pair or ())
    name = project or suite_at(path, None).project
    with only_watch(records), ForkServer() as fork_server:
        watched = Watch(
            branch=Branch(
                path=path,
                name=branch,
                commit_range=commits,
                fork_server=fork_server,
                benchmarks=path if suite_from == "head" else None,
                carries=not everything,
            ),
            project=name,
            plan=options.plan(),
            records=records,
            fork_server=fork_server,
            pairs=pairs,
        )
        if dry_run:
            planned = watched.agenda()
            if not as_json:
                print_table(agenda_table(planned))
            _show(
                agenda=planned,
                done=[],
                news=[],
                watched=watched,
                as_json=as_json,
            )
            return
        while True:
            agenda = watched.agenda()
            if not as_json and agenda:
                print_table(agenda_table(agenda))
            with progress("watch") as watched.on_progress:
                done = list(watched.run(budget_s=60 * budget, max_jobs=max_jobs))
            news = watched.news()
            if news or done or not follow:
                _show(agenda, done, news, watched, as_json=as_json)
            watched.ledger.add(news)
            if repository is not None:
                _post_issues(watched, repository, label or [])
            if not follow:
                break
            time.sleep(every)
            watched.branch.fetch()
    if any(message.is_alert for message in news):
        raise typer.Exit(EXIT_WRONG)


def _post_issues(watched: "Watch", repository: "GitHubRepository", labels: list[str]) -> None:
    """Bring the issues on GitHub in line with all that was told so far."""
    from roofwatch.console.terminal import print_error
    from roofwatch.watch.issues import post_issues

    for line in post_issues(watched, repository, labels):
        print_error(line)


def _show(
    agenda: "list[Job]",
    done: "list[Done]",
    news: "list[News]",
    watched: "Watch",
    *,
    as_json: bool,
) -> None:
    from roofwatch.model.history import RegressionState
    from roofwatch.model.verdict import Verdict

    waiting = watched.agenda()
    open_regressions = [
        regression
        for regression in watched.read().regressions
        if regression.is_confirmed
        and regression.verdict is Verdict.REGRESSED
        and regression.state is RegressionState.OPEN
        and regression.recovered_at is None
    ]
    lines = [
        f"{finished.job.kind} {finished.job.head.short_sha}: "
        f"{finished.note or f'{finished.seconds:.0f} s'}"
        for finished in done
    ]
    lines += [f"{message.kind} {message.sha[:8]} {message.text}" for message in news]
    suspects = watched.read().state.suspects
    # a suspicion is shown with its evidence until a pair has decided it
    lines += [
        f"suspected at {suspect.head.short_sha}, not confirmed: {' '.join(suspect.subject)}: "
        f"{suspect.evidence}"
        for suspect in suspects
    ]
    lines.append(f"open regressions: {len(open_regressions)}")
    document = {
        "agenda": agenda,
        "done": done,
        "news": news,
        "waiting": waiting,
        "suspects": suspects,
        "regressions": open_regressions,
    }
    print_result(document, *lines, as_json=as_json)


def agenda_table(jobs: "list[Job]") -> Table:
    """The agenda with reasons and expected minutes."""
    rows = [(job.kind, job.head.short_sha, f"{job.seconds / 60:.1f}", job.reason) for job in jobs]
    return make_table(("job", "commit", "minutes", "why"), rows)
