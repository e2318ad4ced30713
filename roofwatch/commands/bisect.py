"""The command that finds the commit of a change: bisect."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from roofwatch.commands.options import (
    AsJson,
    ProjectName,
    RecordFolder,
    Resume,
    RunOptions,
    SuiteFrom,
    SuitePath,
    shared_options,
)
from roofwatch.console.terminal import EXIT_CANNOT, EXIT_WRONG, fail, print_result, progress

if TYPE_CHECKING:
    from roofwatch.bisection.commits import CommitRange
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.model.case_key import CaseKey
    from roofwatch.model.history import Regression
    from roofwatch.watch.facts import FactSearch

app = typer.Typer()


@app.command()
@shared_options("targets", "device", "threads", "timer", "cache", "lock_clocks", "timeout")
def bisect(
    path: SuitePath = None,
    *,
    series: Annotated[
        str | None,
        typer.Option(
            metavar="KERNEL/CASE[/IMPLEMENTATION]",
            help="What changed; roofwatch list --json has the cases.",
        ),
    ] = None,
    good: Annotated[str | None, typer.Option(help="Revision before the change.")] = None,
    bad: Annotated[str | None, typer.Option(help="Revision with the change.")] = None,
    regression: Annotated[
        UUID | None,
        typer.Option(metavar="ID", help="Take series and ends from a stored regression."),
    ] = None,
    next_one: Annotated[
        bool, typer.Option("--next", help="Take the oldest request for this kind of machine.")
    ] = False,
    untimed: Annotated[
        bool,
        typer.Option(
            "--untimed",
            help="Compile and check the commits of --series instead of timing them: finds spills, "
            "failures and wrong results, without a GPU.",
        ),
    ] = False,
    output: RecordFolder = Path("roofwatch-records/bisect"),
    options: RunOptions,
    error_rate: Annotated[
        float, typer.Option(min=0.0001, max=0.5, help="How often a wrong commit may be named.")
    ] = 0.02,
    max_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Time limit; --resume continues.")
    ] = None,
    suite_from: SuiteFrom = "head",
    project: ProjectName = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Find the commit in which a series changed, with as few measurements as possible.

    Exit status 0: one commit. 1: a range, no difference, or an open result. 2: an error. With
    --next, 0 also if no request is waiting.
    """
    from roofwatch.bisection.bisect import BisectPlan
    from roofwatch.bisection.commits import list_commits, parse_series
    from roofwatch.bisection.job import (
        as_json_document,
        commit_table,
        exit_status,
        run_bisection,
        sentences,
    )
    from roofwatch.ci.bisect.search import SearchPlan
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.configuration.arguments import configured_url, suite_at
    from roofwatch.configuration.settings import load_settings
    from roofwatch.model.triage import BisectionRange

    if sum([series is not None, regression is not None, next_one]) != 1 or (
        series and not (good and bad)
    ):
        fail(
            "name what to bisect: --series with --good and --bad, or --regression, or --next",
            exit_status=EXIT_CANNOT,
        )
    if untimed and series is None:
        fail("--untimed: name what to bisect: --series", exit_status=EXIT_CANNOT)
    case_id, implementation = ("", None) if series is None else parse_series(series)
    name = project or suite_at(path, None).project
    plan = BisectPlan(
        path=path,
        commit_range=BisectionRange(
            project=name,
            case_id=case_id,
            implementation=implementation,
            good_sha=good or "",
            bad_sha=bad or "",
        ),
        run=replace(options, targets="").plan(),
        output=output,
        search=SearchPlan(error_rate=error_rate),
        budget_s=None if max_minutes is None else 60 * max_minutes,
        is_resumed=resume or next_one,  # another process may have started a request
        benchmarks=path if suite_from == "head" else None,
    )
    url = configured_url()
    claim = None
    with ForkServer() as fork_server:
        if untimed:
            if implementation is None:
                fail(f"--series {series}: name the implementation too", exit_status=EXIT_CANNOT)
            search = _fact_search(
                path=path,
                project=name,
                subject=(case_id, implementation),
                commits=list_commits(path, good or "", bad or ""),
                options=options,
                output=output,
                fork_server=fork_server,
            )
            with progress("bisection") as search.on_progress:
                changes = search.run()
            _show_changes(changes, search.output, as_json=as_json)
            return
        if regression is not None:
            from roofwatch.bisection.stored import read_regression
            from roofwatch.watch.facts import search_and_store

            folder = load_settings().data_dir
            stored, commit_range = read_regression(url, folder, name, regression)
            if commit_range is None:
                point = stored.change_points[0]
                target = point.series.target
                search = _fact_search(
                    path=path,
                    project=name,
                    subject=point.series.case_key,
                    commits=list_commits(path, point.previous_commit.sha, point.commit.sha),
                    options=replace(options, targets=target or "", static=bool(target)),
                    output=output,
                    fork_server=fork_server,
                )
                with progress("bisection") as search.on_progress:
                    changes = search_and_store(search, url, regression)
                _show_changes(changes, search.output, as_json=as_json)
                return
            plan = replace(plan, commit_range=commit_range)
        elif next_one:
            from roofwatch.bisection.stored import claim_next

            claimed = claim_next(plan, fork_server, url)
            if claimed is None:
                line = f"no bisection of {name} is requested for this kind of machine"
                print_result({"state": None}, line, as_json=as_json)
                return
            plan, claim = claimed
        result, folder = run_bisection(
            plan,
            fork_server,
            url,
            claim=claim,
            regression_id=regression,
        )
    document = as_json_document(plan, result, folder)
    commits = result.progress.commits
    print_result(document, commit_table(commits), *sentences(plan.series, result), as_json=as_json)
    if exit_status(result):
        raise typer.Exit(EXIT_WRONG)


def _fact_search(
    path: Path | None,
    project: str,
    subject: "CaseKey",
    commits: "CommitRange",
    options: RunOptions,
    output: Path,
    fork_server: "ForkServer",
) -> "FactSearch":
    from roofwatch.watch.facts import FactSearch

    plan = options.plan()
    # records of another case or of other targets do not answer this search
    searched = f"{path and path.resolve()} {subject} {plan.targets}"
    digest = hashlib.sha256(searched.encode()).hexdigest()
    ends = f"{commits.good_sha[:12]}-{commits.shas[-1][:12]}"
    return FactSearch(
        path=path,
        project=project,
        subject=subject,
        commits=commits,
        plan=plan,
        output=output / f"{ends}-facts-{digest[:8]}",
        fork_server=fork_server,
    )


def _show_changes(changes: Sequence["Regression"], output: Path, *, as_json: bool) -> None:
    """Print changes of compiled code or correctness; status 1 unless a commit is named."""
    from roofwatch.watch.facts import fact_lines

    document = {"regressions": changes, "records": str(output)}
    print_result(document, *fact_lines(changes), as_json=as_json)
    if not any(not change.is_range for change in changes):
        raise typer.Exit(EXIT_WRONG)
