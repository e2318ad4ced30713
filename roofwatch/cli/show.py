"""Commands that show what is stored, from the database or through a server."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from roofwatch.options import AsJson, StoredProject, StoreUrl

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()
show_app = typer.Typer(
    help="What is stored of a project: its runs, series and regressions. From the database, or through a server.",
    no_args_is_help=True,
)
app.add_typer(show_app, name="show")


@show_app.command("projects")
def projects(*, url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the projects, through a server those that the token may read."""
    from roofwatch.store.source import open_source
    from roofwatch.terminal import print_json, print_note

    with open_source(url) as source:
        found = source.list_projects()
    if as_json:
        print_json({"projects": found})
    else:
        print_note("\n".join(found) or "nothing is stored yet")


@show_app.command("runs")
def runs(
    *,
    project: StoredProject,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")] = 20,
    quarantined: Annotated[bool, typer.Option("--quarantined", help="Those in quarantine instead.")] = False,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a project, the last one to start first."""
    from roofwatch.store.source import check_project, open_source
    from roofwatch.stored_tables import runs_table
    from roofwatch.terminal import print_json, print_note, print_table

    with open_source(url) as source:
        found = source.list_runs(project, limit, is_quarantined=quarantined)
        if not found:
            check_project(source, project)
    if as_json:
        print_json({"runs": found})
    elif found:
        print_table(runs_table(found))
    else:
        print_note(f"project {project} has no such runs")


@show_app.command("series")
def series(
    *,
    project: StoredProject,
    kernel: Annotated[str | None, typer.Option("--kernel", "-k", help="Only of this kernel.")] = None,
    metric: Annotated[str | None, typer.Option(help="Only of this metric, for example median_ns.")] = None,
    case: Annotated[str | None, typer.Option(help="Only of the case with this id.")] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Also runs that are one side of a pair.")] = False,
    dirty: Annotated[
        bool, typer.Option("--dirty", help="Also runs of work trees that differed from their commits.")
    ] = False,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show series over the commits of a project: how many points, and the newest value; with --json all points.

    Of times also the noise, a standard deviation around the level, and the smallest step that is found nine times in
    ten with ten commits on either side.
    """
    from roofwatch.ci.history.time_steps import series_noise
    from roofwatch.collector.record.metrics import METRICS
    from roofwatch.db.errors import StoreError
    from roofwatch.store.questions import SeriesQuestion
    from roofwatch.store.source import check_project, open_source
    from roofwatch.stored_tables import series_table
    from roofwatch.terminal import print_json, print_note, print_table

    if metric not in (None, *METRICS):
        raise StoreError(f"metric {metric!r} is not known; there are {', '.join(METRICS)}")
    question = SeriesQuestion(project, kernel, metric, case, include_pairs=pairs, include_dirty=dirty)
    with open_source(url) as source:
        found = source.read_series(question)
        if not found:
            check_project(source, project)
    noise_floors = [series_noise(one) for one in found]
    if as_json:
        print_json({"series": found, "noise_floors": noise_floors})
    elif found:
        print_table(series_table(found, noise_floors))
    else:
        left_out = [
            *([] if pairs else ["runs that are one side of a pair are left out (--pairs)"]),
            *([] if dirty else ["those of work trees that differed from their commits are left out (--dirty)"]),
        ]
        print_note("; ".join([f"project {project} has no such series", *left_out]))


@show_app.command("regressions")
def regressions(
    *,
    project: StoredProject,
    state: Annotated[
        Literal["open", "dismissed"] | None, typer.Option(help="Only in this state of judgement.", show_default=False)
    ] = None,
    triage: Annotated[
        Literal["new", "acknowledged", "expected", "fixed", "invalid"] | None,
        typer.Option(help="Only those that people left in this state.", show_default=False),
    ] = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what was judged of a project, of the newest commit first, and what people decided about it."""
    from roofwatch.db.auth.values import TriageState
    from roofwatch.db.values import RegressionState
    from roofwatch.store.source import check_project, open_source
    from roofwatch.stored_tables import regressions_table
    from roofwatch.terminal import print_json, print_note, print_table

    with open_source(url) as source:
        found = source.list_regressions(
            project,
            None if state is None else RegressionState(state),
            None if triage is None else TriageState(triage),
        )
        if not found:
            check_project(source, project)
    if as_json:
        print_json({"regressions": found})
    elif found:
        print_table(regressions_table(found))
    else:
        print_note(f"project {project} has no such regressions")
