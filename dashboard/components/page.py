"""What every view shares: its choices in the address, links to other views, empty states."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from html import escape
from pathlib import PurePosixPath
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urljoin
from zoneinfo import ZoneInfo

import streamlit as st
from streamlit.runtime.scriptrunner import RerunException

from roofwatch.configuration.settings import load_settings
from roofwatch.dashboard import data
from roofwatch.dashboard.access import show_sign_in
from roofwatch.dashboard.charts.lanes import LaneMark
from roofwatch.dashboard.components.permalink import Permalink
from roofwatch.dashboard.components.shell import (
    RANGE_AT_FIRST,
    ShellHeader,
    TimeRange,
    dragged_range,
    list_ranges,
    show_header,
)
from roofwatch.dashboard.filters import PARAMETERS, Filters, options_of
from roofwatch.dashboard.linked_row import find_linked_row
from roofwatch.dashboard.navigation import FRONT_PAGE, path_of
from roofwatch.dashboard.wording import escaped, shortened
from roofwatch.db.queries import questions
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.model.history import CommitRef, Series, SeriesKey
from roofwatch.model.stored_results import FleetRun, RunnerCoverage

MAIN_FIGURE = "main-figure"
"""Key of the main figure or table of a view, whose load time is measured."""

NO_RUNS = "This project has no runs yet. Measure a benchmark file, then store its record:"


@dataclass(frozen=True)
class SourceLinks:
    """Links to source code on GitHub, GitLab or Gitea."""

    repository_url: str | None
    """None if not configured."""

    @classmethod
    def of_project(cls, pattern: str | None, project: str) -> "SourceLinks":
        """Create from a setting such as `https://github.com/{project}`."""
        if pattern is None:
            return cls(None)
        address = pattern.rstrip("/").replace("{project}", quote(project))
        return cls(address)

    def commit_html(self, commit: CommitRef) -> str:
        """Return the short form of a commit as HTML, linked if possible."""
        named = f"<code>{escape(commit.short_sha)}</code>"
        if self.repository_url is None:
            return named
        repository = escape(self.repository_url)
        sha = quote(commit.sha)
        return f'<a href="{repository}/commit/{sha}" target="_blank">{named}</a>'

    def line_html(self, sha: str, file: str, line: int) -> str:
        """Return a source line as HTML, linked unless the recorded path leaves the repository."""
        named = f"<code>{escaped(file)}:{line}</code>"
        path = self._path_in_repository(file)
        if path is None:
            return named
        commit = quote(sha)
        address = escape(f"{self.repository_url}/blob/{commit}/{path}#L{line}")
        return f'<a href="{address}" target="_blank" rel="noopener">{named}</a>'

    def changes_html(self, base: str, head: str, file: str) -> str:
        """Return a link to what changed in a file between two commits; "" without a forge."""
        path = self._path_in_repository(file)
        if path is None:
            return ""
        # GitHub names the part of a file by the hash of its path; elsewhere the link opens the top
        part = hashlib.sha256(file.encode()).hexdigest()
        commits = f"{quote(base)}...{quote(head)}"
        address = escape(f"{self.repository_url}/compare/{commits}#diff-{part}")
        named = f"<code>{escaped(file)}</code>"
        return f'<a href="{address}" target="_blank" rel="noopener">{named}</a>'

    def _path_in_repository(self, file: str) -> str | None:
        parts = PurePosixPath(file).parts
        # a path comes from a record, which is untrusted
        if ".." in parts or file.startswith("/") or "\\" in file:
            return None
        if self.repository_url is None:
            return None
        return quote("/".join(parts))


@dataclass(frozen=True)
class View:
    name: str
    project: str
    link: Permalink
    filters: Filters
    """Filters of all views."""
    zone: tzinfo
    """Time zone of the reader."""
    sources: SourceLinks
    range: TimeRange
    """Commits that are shown."""
    runners: Sequence[RunnerCoverage]
    """All runner classes, whatever the filters."""

    def commit_html(self, commit: CommitRef) -> str:
        """Write a commit with subject and author."""
        linked = self.sources.commit_html(commit)
        subject = escaped(shortened(commit.subject))
        author = escaped(shortened(commit.author))
        # isolated: a name that is written from right to left would take what follows along
        return f"{linked} <bdi>{subject}</bdi> · <bdi>{author}</bdi>"

    def list_runs(self, *, limit: int, **further: Any) -> Sequence[FleetRun]:
        """List the runs within the filters, newest first; without any, say so and end the view.

        Args:
            limit: Maximum.
            further: Of `list_fleet_runs`.
        """
        runs = data.ask(
            questions.list_fleet_runs,
            self.project,
            limit=limit,
            runner_classes=self.filters.runner_classes,
            branches=self.filters.branches,
            **further,
        )
        # the filters may hide runs that exist
        if not runs and self.filters.is_narrow:
            show_no_match(self, "runs")
            st.stop()
        if not runs:
            show_first_steps(NO_RUNS)
        return runs

    def read_series(self, *keys: SeriesKey) -> Sequence[Series]:
        """Read series over the commits and on the branches that are shown."""
        question = TrendQuestion(
            self.project,
            keys,
            branches=self.filters.branches,
            since=self.range.since,
            until=self.range.until,
        )
        trend = data.ask(questions.read_trend, question)
        return trend.series

    def dragged_part(self, series: Series) -> Series:
        """The points in the dates that were dragged; all without any."""
        if not self.range.is_dragged:
            return series
        points = [point for point in series.points if self.range.admits(point.commit.committed_at)]
        return replace(series, points=tuple(points))

    def list_releases(self) -> list[LaneMark]:
        """Return date and name of each release, oldest first."""
        releases = data.ask(questions.list_releases, self.project)
        return [LaneMark(release.commit.committed_at, release.name) for release in releases]

    def address_of(self, view: str, **choices: str) -> str:
        """Return the address of another view with some choices and the same filters."""
        # a proxy may serve the dashboard under a path
        url = urljoin(st.context.url or "/", path_of(view))
        parameters = urlencode(self.query(**choices), doseq=True)
        return f"{url}?{parameters}"

    def anchor(
        self,
        label: str,
        view: str,
        *,
        attributes: str = "",
        **choices: str,
    ) -> str:
        """Return a link to a view as HTML; label and further attributes are HTML too."""
        address = escape(self.address_of(view, **choices))
        return f'<a {attributes} href="{address}" target="_self">{label}</a>'

    def query(self, **choices: str) -> dict[str, str | Sequence[str]]:
        """Return the parameters of an address: what all views share, and some choices."""
        shared: dict[str, str | Sequence[str]] = {"project": self.project}
        for name, values in self.filters.chosen.items():
            if values:
                shared[name] = list(values)
        # short addresses: the default is not written
        if self.range.name != RANGE_AT_FIRST:
            shared["range"] = self.range.name
        return {**shared, **choices}


@contextmanager
def open_view(name: str, title: str, question: str) -> Iterator[View]:
    """Draw the header of a view: what it holds is part of the address and of every link.

    Without any stored run, show how to start and end the view.

    Args:
        name: Name of the view, which separates its choices from others.
        title: Heading.
        question: What the view answers, in one line.
    """
    link = Permalink(name)
    st.set_page_config(page_title=f"{title} · roofwatch")
    st.html(f"<h1 class=rw-name>{escape(title)}: {escape(question)}</h1>")
    projects = data.list_projects()
    # before the header's choices, which need a project
    if not projects and data.has_restricted_projects():
        show_sign_in()
        st.info("You may not read any project here. Sign in, or ask for access.")
        st.stop()
    if not projects:
        show_first_steps("No runs are stored yet. Measure a benchmark file, then store its record:")
    is_left = False
    try:
        yield _read_choices(name, link, projects)
    except RerunException:
        # another page was asked for: its address must not be replaced by half of this one's
        is_left = True
        raise
    finally:
        if not is_left:
            link.write()


def _read_choices(name: str, link: Permalink, projects: Sequence[str]) -> View:
    """Read project, filters and range of the address, and draw them as the header."""
    project = link.read(
        "Project",
        projects,
        parameter="project",
        default=_linked_project(name, projects),
    )
    # a link shows the same project when others are stored
    link.keep("project", project)
    facets = data.ask(questions.read_filter_options, project)
    owners = data.owners_of(facets)
    options = options_of(facets, owners)
    chosen: dict[str, list[str]] = {}
    for parameter, label in PARAMETERS.items():
        chosen[parameter] = link.read_some(
            label,
            options[parameter],
            parameter=parameter,
        )
    filters = Filters(facets, chosen, owners)
    runners = data.ask(questions.list_runner_coverage, project)
    # ranges count from the newest commit, not from today
    newest = max((runner.newest_commit_at for runner in runners), default=None)
    releases = data.ask(questions.list_releases, project)
    zone = _reader_zone()
    ranges = list_ranges(releases, newest)
    requested_range = st.query_params.get("range", "")
    dragged = dragged_range(requested_range, zone)
    if dragged is not None:
        ranges.append(dragged)
    range_name = link.read(
        "Time range",
        [choice.name for choice in ranges],
        parameter="range",
        default=RANGE_AT_FIRST,
    )
    settings = load_settings()
    view = View(
        name=name,
        project=project,
        link=link,
        filters=filters,
        zone=zone,
        sources=SourceLinks.of_project(settings.repository_url, project),
        range=next(choice for choice in ranges if choice.name == range_name),
        runners=runners,
    )
    show_header(
        ShellHeader(
            view=name,
            project=project,
            projects=projects,
            filters=filters,
            options=options,
            ranges=ranges,
            chosen_range=view.range,
            runners=runners,
            query=view.query(),
        )
    )
    show_sign_in()
    return view


def _linked_project(view: str, projects: Sequence[str]) -> str | None:
    """Return the project of the commit in an address without a project, if it is in one only."""
    if view != FRONT_PAGE or "project" in st.query_params:
        return None
    # the only project needs no search
    if len(projects) == 1:
        return None
    linked = find_linked_row(dict(st.query_params))
    if linked is None:
        return None
    return linked[0]


def _reader_zone() -> tzinfo:
    """Return the browser's time zone, or UTC if it is unknown."""
    # the browser may tell no zone, or one that this system does not know
    if not st.context.timezone:
        return UTC
    try:
        return ZoneInfo(st.context.timezone)
    except (KeyError, ValueError):
        return UTC


def note_whole_runs(view: View) -> None:
    """Note that a filter of cases does not apply to what is shown next."""
    if view.filters.case_ids is not None:
        st.caption(
            "For whole runs, not per case: the filters kernel, family, dtype, tag and owner do "
            "not apply."
        )


def show_no_match(view: View, subject: str) -> None:
    """Say that the filters admit nothing, and how to remove them."""
    path, _, _ = view.address_of(view.name).partition("?")
    without_filters = urlencode({"project": view.project})
    address = escape(f"{path}?{without_filters}")
    st.html(
        f"<p class=rw-soft>No {escape(subject)} for these filters. "
        f'<a href="{address}" target="_self">Clear filters</a></p>'
    )


def show_first_steps(what_is_missing: str) -> NoReturn:
    """Show what is missing and the commands that create it, and end the view."""
    st.info(what_is_missing, icon=":material/play_circle:")
    st.code(
        "roofwatch run path/to/bench_file.py\nroofwatch ingest roofwatch-records",
        language=None,
    )
    st.caption("To try it with real measurements first: `roofwatch demo`")
    st.stop()
