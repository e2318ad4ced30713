"""Commands that show what is stored, from the database or through a server."""

from typing import Annotated, Literal

import typer

from roofwatch.options import AsJson, ShownProject, StoreUrl
from roofwatch.terminal import print_result

app = typer.Typer()
show_app = typer.Typer(
    help="Show stored projects, runs, series and regressions, from the database or through a "
    "server.",
    no_args_is_help=True,
)
app.add_typer(show_app, name="show")


@show_app.command("projects")
def projects(*, url: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the projects; through a server, those that the token may read."""
    from roofwatch.store.reading import open_source

    with open_source(url) as source:
        found = source.list_projects()
    print_result({"projects": found}, "\n".join(found) or "nothing is stored yet", as_json=as_json)


@show_app.command("runs")
def runs(
    *,
    project: ShownProject = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of runs.")
    ] = 20,
    quarantined: Annotated[
        bool, typer.Option("--quarantined", help="List quarantined runs instead.")
    ] = False,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a project, newest first."""
    from roofwatch.comparison_tables import runs_table
    from roofwatch.store.reading import choose_project, open_source

    with open_source(url) as source:
        project = choose_project(source, project)
        found = source.list_runs(project, limit, is_quarantined=quarantined)
    print_result(
        {"runs": found},
        runs_table(found) if found else f"project {project} has no such runs",
        as_json=as_json,
    )


@show_app.command("series")
def series(
    *,
    project: ShownProject = None,
    kernel: Annotated[str | None, typer.Option("--kernel", "-k", help="Only this kernel.")] = None,
    metric: Annotated[str | None, typer.Option(help="Only this metric, such as median_ns.")] = None,
    case: Annotated[str | None, typer.Option(help="Only the case with this id.")] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Include runs that are one side of a pair.")
    ] = False,
    dirty: Annotated[
        bool, typer.Option("--dirty", help="Include runs of dirty work trees.")
    ] = False,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the series of a metric, the time by default; with --json all metrics and points.

    History: the newest 20 points. Noise: the deviation around the level. Detectable: a step found
    nine times in ten.
    """
    from roofwatch.ci.history.steps import series_noise
    from roofwatch.comparison_tables import series_table
    from roofwatch.db.errors import StoreError
    from roofwatch.model.metrics import METRICS, TIME, is_metric
    from roofwatch.store.reading import choose_project, open_source

    if metric is not None and not is_metric(metric):
        raise StoreError(f"unknown metric {metric!r}; the metrics are {', '.join(METRICS)}")
    with open_source(url) as source:
        project = choose_project(source, project)
        found = source.read_series(
            project,
            kernel=kernel,
            metric=metric,
            case_id=case,
            include_pairs=pairs,
            include_dirty=dirty,
        )
    noise_floors = [series_noise(one) for one in found]
    excluded = [
        *([] if pairs else ["runs of pairs (--pairs)"]),
        *([] if dirty else ["dirty work trees (--dirty)"]),
    ]
    hint = f"; excluded: {', '.join(excluded)}" if excluded else ""
    has_times = any(one.key.metric == TIME.key for one in found)
    wanted = []
    for one, noise_floor in zip(found, noise_floors, strict=True):
        # of a project that only has values of other tools, these are shown
        is_default = one.key.metric == TIME.key or (not has_times and one.key.is_performance)
        if is_default if metric is None else one.key.metric == metric:
            wanted.append((one, noise_floor))
    shown = series_table(wanted) if wanted else f"project {project} has no such series{hint}"
    print_result({"series": found, "noise_floors": noise_floors}, shown, as_json=as_json)


@show_app.command("regressions")
def regressions(
    *,
    project: ShownProject = None,
    state: Annotated[
        Literal["open", "dismissed", "no_longer_found"] | None,
        typer.Option(help="Only regressions in this state."),
    ] = None,
    triage: Annotated[
        Literal["new", "acknowledged", "expected", "fixed", "invalid"] | None,
        typer.Option(help="Only regressions with this triage."),
    ] = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the regressions of a project with their triage, newest commit first."""
    from roofwatch.ci.history.recent import possible_changes
    from roofwatch.comparison_tables import possible_lines, regressions_table
    from roofwatch.db.queries import questions
    from roofwatch.model.history import RegressionState
    from roofwatch.model.triage import TriageState
    from roofwatch.store.reading import choose_project, open_source

    with open_source(url) as source:
        project = choose_project(source, project)
        found = source.list_regressions(
            project,
            None if state is None else RegressionState(state),
            None if triage is None else TriageState(triage),
        )
        judged = [one.regression for one in source.list_regressions(project)]
        recent = source.ask(questions.read_recent_runs, project)
    possible = possible_changes(recent, judged)
    table = regressions_table([one.regression for one in found], [one.triage for one in found])
    shown = table if found else f"project {project} has no such regressions"
    document = {"regressions": found, "possible_changes": possible}
    print_result(document, shown, *possible_lines(possible), as_json=as_json)
