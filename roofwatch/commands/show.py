"""Commands that show what is stored, from the database or through a server."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from roofwatch.commands.options import AsJson, ShownProject, StoreUrl
from roofwatch.console.terminal import print_result
from roofwatch.model.optional import map_optional

if TYPE_CHECKING:
    from rich.table import Table

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
        names = source.list_projects()
    print_result({"projects": names}, "\n".join(names) or "nothing is stored yet", as_json=as_json)


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
    from roofwatch.store.reading import choose_project, open_source
    from roofwatch.tables.stored import runs_table

    with open_source(url) as source:
        project = choose_project(source, project)
        stored_runs = source.list_runs(project, limit, is_quarantined=quarantined)
    report: str | Table = f"project {project} has no such runs"
    if stored_runs:
        report = runs_table(stored_runs)
    print_result({"runs": stored_runs}, report, as_json=as_json)


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
    from roofwatch.db.errors import StoreError
    from roofwatch.model.metrics import METRICS, TIME, is_metric
    from roofwatch.model.series_filter import SeriesFilter
    from roofwatch.store.reading import choose_project, open_source
    from roofwatch.tables.stored import series_table

    if metric is not None and not is_metric(metric):
        raise StoreError(f"unknown metric {metric!r}; the metrics are {', '.join(METRICS)}")
    with open_source(url) as source:
        chosen = SeriesFilter(
            project=choose_project(source, project),
            kernel=kernel,
            metric=metric,
            case=case,
            include_pairs=pairs,
            include_dirty=dirty,
        )
        stored_series = source.read_series(chosen)
    noise_floors = [series_noise(values) for values in stored_series]
    rows = list(zip(stored_series, noise_floors, strict=True))
    if metric is None:
        times = [row for row in rows if row[0].key.metric == TIME.key]
        # of a project that only has values of other tools, these are shown
        rows = times or [row for row in rows if row[0].key.is_performance]
    report: Table | str
    if rows:
        report = series_table(rows)
    else:
        report = f"project {chosen.project} has no such series{_excluded(pairs=pairs, dirty=dirty)}"
    print_result({"series": stored_series, "noise_floors": noise_floors}, report, as_json=as_json)


def _excluded(*, pairs: bool, dirty: bool) -> str:
    names: list[str] = []
    if not pairs:
        names.append("runs of pairs (--pairs)")
    if not dirty:
        names.append("dirty work trees (--dirty)")
    if not names:
        return ""
    return f"; excluded: {', '.join(names)}"


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
    from roofwatch.db.queries import questions
    from roofwatch.model.history import RegressionState
    from roofwatch.model.triage import TriageState
    from roofwatch.store.reading import choose_project, open_source
    from roofwatch.tables.stored import possible_lines, regressions_table

    with open_source(url) as source:
        project = choose_project(source, project)
        selected = source.list_regressions(
            project,
            map_optional(RegressionState, state),
            map_optional(TriageState, triage),
        )
        judged = [triaged.regression for triaged in source.list_regressions(project)]
        recent = source.ask(questions.read_recent_runs, project)
    possible = possible_changes(recent, judged)
    report: Table | str = f"project {project} has no such regressions"
    if selected:
        report = regressions_table(
            [triaged.regression for triaged in selected], [triaged.triage for triaged in selected]
        )
    document = {"regressions": selected, "possible_changes": possible}
    print_result(document, report, *possible_lines(possible), as_json=as_json)


@show_app.command("acceptances")
def acceptances(
    *,
    project: ShownProject = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what was accepted in pull requests, newest first, and which regressions that settled."""
    from roofwatch.store.reading import choose_project, open_source
    from roofwatch.tables.stored import acceptances_table

    with open_source(url) as source:
        project = choose_project(source, project)
        accepted = source.list_acceptances(project)
        regressions = source.list_regressions(project)
    report: Table | str = f"nothing was accepted in a pull request of {project}"
    if accepted:
        report = acceptances_table(accepted, regressions)
    print_result({"acceptances": accepted}, report, as_json=as_json)
