"""Commands that show what is stored, from the database or through a server."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from roofwatch.options import AsJson, StoredProject, StoreUrl
from roofwatch.terminal import print_json, print_note, print_table

# Commands import what they need, to keep `roofwatch --help` quick.
app = typer.Typer()
show_app = typer.Typer(
    help="Show stored projects, runs, series and regressions, from the database or through a server.",
    no_args_is_help=True,
)
app.add_typer(show_app, name="show")


@show_app.command("projects")
def projects(*, url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the projects; through a server, those that the token may read."""
    from roofwatch.store.reading import open_source

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
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of runs.")] = 20,
    quarantined: Annotated[bool, typer.Option("--quarantined", help="List quarantined runs instead.")] = False,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a project, newest first."""
    from roofwatch import tables
    from roofwatch.store.reading import check_project, open_source

    with open_source(url) as source:
        found = source.list_runs(project, limit, is_quarantined=quarantined)
        if not found:
            check_project(source, project)
    if as_json:
        print_json({"runs": found})
    elif found:
        print_table(tables.runs(found))
    else:
        print_note(f"project {project} has no such runs")


@show_app.command("series")
def series(
    *,
    project: StoredProject,
    kernel: Annotated[str | None, typer.Option("--kernel", "-k", help="Only this kernel.")] = None,
    metric: Annotated[str | None, typer.Option(help="Only this metric, such as median_ns.")] = None,
    case: Annotated[str | None, typer.Option(help="Only the case with this id.")] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Include runs that are one side of a pair.")] = False,
    dirty: Annotated[bool, typer.Option("--dirty", help="Include runs of dirty work trees.")] = False,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a project's series: number of points, newest value, noise and detectable step; with --json all points.

    Noise is the standard deviation around the level. Detectable: the smallest step found nine times in ten.
    """
    from roofwatch import tables
    from roofwatch.ci.history.steps import series_noise
    from roofwatch.collector.record.metrics import METRICS
    from roofwatch.db.errors import StoreError
    from roofwatch.store.reading import check_project, open_source
    from roofwatch.store.source import SeriesQuestion

    if metric not in (None, *METRICS):
        raise StoreError(f"unknown metric {metric!r}; the metrics are {', '.join(METRICS)}")
    question = SeriesQuestion(project, kernel, metric, case, include_pairs=pairs, include_dirty=dirty)
    with open_source(url) as source:
        found = source.read_series(question)
        if not found:
            check_project(source, project)
    noise_floors = [series_noise(one) for one in found]
    if as_json:
        print_json({"series": found, "noise_floors": noise_floors})
    elif found:
        print_table(tables.series(found, noise_floors))
    else:
        excluded = [*([] if pairs else ["runs of pairs (--pairs)"]), *([] if dirty else ["dirty work trees (--dirty)"])]
        hint = f"; excluded: {', '.join(excluded)}" if excluded else ""
        print_note(f"project {project} has no such series{hint}")


@show_app.command("regressions")
def regressions(
    *,
    project: StoredProject,
    state: Annotated[
        Literal["open", "dismissed"] | None, typer.Option(help="Only regressions in this state.", show_default=False)
    ] = None,
    triage: Annotated[
        Literal["new", "acknowledged", "expected", "fixed", "invalid"] | None,
        typer.Option(help="Only regressions with this triage.", show_default=False),
    ] = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the regressions of a project with their triage, newest commit first."""
    from roofwatch import tables
    from roofwatch.db.auth.values import TriageState
    from roofwatch.db.values import RegressionState
    from roofwatch.store.reading import check_project, open_source

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
        print_table(tables.regressions([one.regression for one in found], [one.triage for one in found]))
    else:
        print_note(f"project {project} has no such regressions")
