"""Commands that measure commits of the past: the one that a series changed with, and those that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from roofwatch.options import (
    EXIT_CANNOT,
    EXIT_WRONG,
    AsJson,
    Discard,
    ProjectName,
    RecordFolder,
    Resume,
    RunOptions,
    StoreUrl,
    SuitePath,
    run_options,
)

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command()
@run_options(
    *("device", "threads", "timer", "cache", "lock_clocks", "launch_timeout", "preparation_timeout", "check_timeout"),
)
def bisect(
    path: SuitePath = None,
    *,
    series: Annotated[
        str | None,
        typer.Option(
            metavar="KERNEL/CASE[/IMPLEMENTATION]", help="What changed, as roofwatch list --json names cases."
        ),
    ] = None,
    good: Annotated[str | None, typer.Option(help="Revision before the change.")] = None,
    bad: Annotated[str | None, typer.Option(help="Revision that has it.")] = None,
    regression: Annotated[
        UUID | None, typer.Option(metavar="ID", help="Instead: a regression of the store, which says what changed.")
    ] = None,
    next_one: Annotated[
        bool, typer.Option("--next", help="Instead: the oldest bisection that waits for a machine like this one.")
    ] = False,
    output: RecordFolder = Path("roofwatch-records/bisect"),
    options: RunOptions,
    threshold: Annotated[
        float, typer.Option(min=0.0001, max=1.0, help="Ends that differ by less than this fraction do not differ.")
    ] = 0.01,
    error_rate: Annotated[
        float, typer.Option(min=0.0001, max=0.5, help="How often the wrong commit may be named.")
    ] = 0.02,
    max_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after so long; --resume goes on.", show_default=False)
    ] = None,
    project: ProjectName = None,
    resume: Resume = False,
    discard: Discard = False,
    as_json: AsJson = False,
) -> None:
    """Find the commit that a series changed with, by measuring as few as it takes against the good end.

    Exit status 0: one commit is named. 1: a range is, or the ends do not differ, or it stayed open. 2: it could not be
    done. With --next, 0 also where nothing waits.
    """
    from roofwatch.arguments import configured_url, suite_at
    from roofwatch.ci.bisect.search import SearchPlan
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.history.bisect_job import BisectJob
    from roofwatch.history.plan import BisectPlan, parse_series
    from roofwatch.history.report import as_json_document, exit_status, sentences, table
    from roofwatch.settings import load_settings
    from roofwatch.terminal import fail, print_json, print_note, print_table

    asked_for = [series is not None, regression is not None, next_one]
    if sum(asked_for) != 1 or (series is not None and (good is None or bad is None)):
        fail("name what to bisect: --series with --good and --bad, or --regression, or --next", exit_status=EXIT_CANNOT)
    case_id, implementation = ("", None) if series is None else parse_series(series)
    plan = BisectPlan(
        path=path,
        case_id=case_id,
        implementation=implementation,
        good=good or "",
        bad=bad or "",
        plan=replace(options, targets="").plan(),
        output=output,
        search=SearchPlan(error_rate=error_rate),
        threshold=threshold,
        budget_s=None if max_minutes is None else 60 * max_minutes,
        # whoever takes a waiting one may have begun it before
        is_resumed=resume or next_one,
        is_discarded=discard,
    )
    with ForkServer() as fork_server:
        job = BisectJob(plan, project or suite_at(path, None).project, fork_server, configured_url())
        if regression is not None:
            job = job.of_regression(regression, folder=load_settings().data_dir)
        waiting = job.of_next() if next_one else job
        ended = None if waiting is None else waiting.run()
    if waiting is None or ended is None:
        if as_json:
            print_json({"state": None})
        else:
            print_note(f"no bisection of {job.project} waits for a machine like this one")
        return
    if as_json:
        print_json(as_json_document(waiting.plan, ended))
    else:
        print_table(table(ended.progress))
        print_note("\n".join(sentences(ended, waiting.plan)))
    if exit_status(ended):
        raise typer.Exit(EXIT_WRONG)


@app.command()
@run_options()
def backfill(
    path: SuitePath = None,
    *,
    commits: Annotated[str, typer.Option("--range", metavar="A..B", help="Commits after A, up to B.")],
    records: Annotated[
        Path | None,
        typer.Option(
            help="Folder of records that says what was measured; what is stored if left out.", show_default=False
        ),
    ] = None,
    url: StoreUrl = None,
    output: RecordFolder = Path("roofwatch-records"),
    options: RunOptions,
    max_runs: Annotated[int | None, typer.Option(min=1, help="No more runs than these.", show_default=False)] = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Begin no run after so long.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also commits that are made from what the commit before is made from.")
    ] = False,
    project: ProjectName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be measured, and why.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure commits that were never measured on this runner class, the most informative first.

    What was measured before is not measured again, so the same command goes on where it was stopped. Records are sent
    where a server is configured. Exit status 1: one of the commits could not be measured, or something in it failed.
    """
    from roofwatch.arguments import suite_at
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.history.backfill import BackfillJob, as_json_document, order_table, sentences
    from roofwatch.terminal import print_json, print_note, print_table

    plan = options.plan()
    name = project or suite_at(path, None).project
    with ForkServer() as fork_server:
        job = BackfillJob(path, name, commits, plan, output, records, fork_server, url)
        backfilled = job.plan_it(skips_same=not everything)
        if not as_json:
            print_table(order_table(backfilled))
        done = [] if dry_run else job.run(backfilled, max_runs=max_runs, max_minutes=max_minutes)
    if as_json:
        print_json(as_json_document(backfilled, done))
    else:
        print_note("\n".join(sentences(backfilled, done)))
    if any(one.has_failed for one in done):
        raise typer.Exit(EXIT_WRONG)
