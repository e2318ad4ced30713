"""What every view shares: the header with search, project and filters, links to other views, empty
states.
"""

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
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard import data
from roofwatch.dashboard.access import show_sign_in
from roofwatch.dashboard.components.permalink import Permalink, clear_filters
from roofwatch.dashboard.components.table import show_html_table
from roofwatch.dashboard.filters import PARAMETERS, Filters, options_of
from roofwatch.dashboard.wording import code_span, shortened
from roofwatch.db.queries import questions
from roofwatch.model.history import CommitRef
from roofwatch.model.stored_results import FilterOptions, FleetRun
from roofwatch.settings import load_settings

MAIN_FIGURE = "main-figure"
"""Key of the main figure or table of a view, whose load time is measured."""

_SEARCH = "search"
_LONGEST_SEARCH = 200
_FOCUS_JS = f"""
export default () => {{
  const focus = event => {{
    if (event.key !== "/" || event.target.closest("input, textarea, [contenteditable]")) return;
    event.preventDefault();
    document.querySelector(".st-key-{_SEARCH} input")?.focus();
  }};
  document.addEventListener("keydown", focus);
  return () => document.removeEventListener("keydown", focus);
}}
"""
_focus_on_slash = st.components.v2.component("focus_search", js=_FOCUS_JS)
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
        return cls(pattern.rstrip("/").replace("{project}", quote(project)))

    def commit(self, sha: str) -> str:
        """Return a commit as Markdown, linked if possible."""
        named = code_span(sha[:8])
        if self.repository_url is None:
            return named
        return f"[{named}]({self.repository_url}/commit/{quote(sha)})"

    def commit_html(self, commit: CommitRef) -> str:
        """Return the short form of a commit as HTML, linked if possible."""
        named = f"<code>{escape(commit.short_sha)}</code>"
        if self.repository_url is None:
            return named
        return (
            f'<a href="{escape(self.repository_url)}/commit/{quote(commit.sha)}" '
            f'target="_blank">{named}</a>'
        )

    def line(self, sha: str, file: str, line: int) -> str:
        """Return a source line as Markdown, linked unless the recorded path leaves the
        repository.
        """
        named = code_span(f"{file}:{line}")
        parts = PurePosixPath(file).parts
        # a path comes from a record, which is untrusted
        leaves_repository = ".." in parts or file.startswith("/") or "\\" in file
        if self.repository_url is None or leaves_repository:
            return named
        path = quote("/".join(parts))
        return f"[{named}]({self.repository_url}/blob/{quote(sha)}/{path}#L{line})"


@dataclass(frozen=True)
class View:
    project: str
    link: Permalink
    filters: Filters
    """Filters of all views."""
    zone: tzinfo
    """Time zone of the reader."""
    sources: SourceLinks

    def commit_line(self, commit: CommitRef) -> str:
        """Write a commit with subject and author as Markdown."""
        subject = shortened(commit.subject) or "without a subject"
        author = shortened(commit.author) or "none"
        return f"{self.sources.commit(commit.sha)} {code_span(subject)} by {code_span(author)}"

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
            show_no_match("runs")
            st.stop()
        if not runs:
            show_first_steps(NO_RUNS)
        return runs

    def address_of(self, view: str, **choices: str) -> str:
        """Return the address of another view with some choices and the same filters."""
        url = urljoin(st.context.url or "/", view)
        return f"{url}?{urlencode(self._query(choices), doseq=True)}"

    def anchor(self, label: str, view: str, **choices: str) -> str:
        """Return a link to another view as HTML; the label is HTML too."""
        return f'<a href="{escape(self.address_of(view, **choices))}" target="_self">{label}</a>'

    def page_link(
        self,
        view: str,
        label: str,
        *,
        icon: str | None = None,
        place: Any = st,
        **choices: str,
    ) -> None:
        """Show a link to another view with some choices and the same filters."""
        place.page_link(
            f"views/{view}.py",
            label=label,
            icon=icon,
            query_params=self._query(choices),
        )

    def compare_link(
        self,
        label: str,
        *,
        base: str,
        head: str,
        runner_class: str = "",
        place: Any = st,
    ) -> None:
        """Show a link to the comparison of two commits, on a runner class if given."""
        on_runner = {"runner": runner_class} if runner_class else {}
        self.page_link(
            "compare",
            label,
            icon=":material/compare_arrows:",
            place=place,
            by="commits",
            base=base,
            head=head,
            **on_runner,
        )

    def _query(self, choices: dict[str, str]) -> dict[str, str | list[str]]:
        filters = {name: list(values) for name, values in self.filters.chosen.items() if values}
        return {"project": self.project, **filters, **choices}


@contextmanager
def open_view(name: str, title: str, question: str) -> Iterator[View]:
    """Draw the header of a view, with project and filters; both are part of the address and kept
    between views.

    Without any stored run, show how to start and end the view.

    Args:
        name: Name of the view, which separates its choices from others.
        title: Heading.
        question: What the view answers, in one line.
    """
    link = Permalink(name)
    st.set_page_config(page_title=f"{title} · roofwatch")
    zone = _reader_zone()
    heading, choices = st.columns([1, 1], vertical_alignment="bottom")
    with heading.container(gap=None):
        st.title(title, anchor=False)
        st.caption(f"{question} Times: {zone}.")
    projects = data.list_projects()
    # before the header's choices, which need a project
    if not projects:
        show_first_steps("No runs are stored yet. Measure a benchmark file, then store its record:")
    line = choices.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="bottom"
    )
    try:
        text = _ask_for_text(line)
        panel = line.popover("Filters", icon=":material/filter_alt:")
        project = link.choose("Project", projects, parameter="project", place=line)
        filters = _choose_filters(link, data.ask(questions.read_filter_options, project), panel)
        show_sign_in(line)
        sources = SourceLinks.of_project(load_settings().repository_url, project)
        view = View(
            project,
            link,
            filters,
            zone,
            sources,
        )
        if text:
            # a search covers the whole project
            _show_found(replace(view, filters=Filters(filters.facets)), text)
        yield view
    finally:
        link.write()


def _ask_for_text(line: DeltaGenerator) -> str:
    """Show the field of the search, which the key `/` focuses."""
    with line.container(key="search-field", width=190, gap=None):
        _focus_on_slash(key="focus-search", height=1)
        text = st.text_input(
            "Search",
            key=_SEARCH,
            type="search",
            placeholder="press /",
        )
    return (text or "").strip()[:_LONGEST_SEARCH]


def _show_found(view: View, text: str) -> None:
    """List kernels, cases and commits of the whole project as links to their views; `view` has no
    filters.
    """
    matches = data.ask(questions.search, view.project, text)
    regressions = data.list_regressions(view.project)
    regressed_shas = {regression.commit.sha for regression in regressions}

    def trend(name: str, **case: str) -> str:
        return view.anchor("Trend", "trends", kernel=name, **case)

    rows = [
        (
            "kernel",
            name,
            [trend(name), view.anchor("Roofline", "kernel", kernel=name)],
        )
        for name in matches.kernels
    ]
    for case_id in matches.cases:
        kernel, _, _ = case_id.partition("/")
        rows.append(("case", case_id, [trend(kernel, case=case_id)]))
    for measured in matches.commits:
        commit = measured.commit
        links = [
            view.anchor("Run", "run", run=measured.run_id),
            view.anchor("Roofline", "kernel", commit=commit.sha),
        ]
        if commit.sha in regressed_shas:
            links.insert(0, view.anchor("Regression", "regression", commit=commit.sha))
        rows.append(("commit", f"{commit.short_sha} {commit.subject}", links))
    with st.container(border=True, key="found"):
        if not rows:
            st.text(
                "No kernel, case or commit matches. A pull request is found by its number in a "
                "commit's subject."
            )
        show_html_table(
            [f"<td>{kind}</td><td>{escape(shortened(name))}</td><td>{' · '.join(links)}</td>"]
            for kind, name, links in rows
        )


def _reader_zone() -> tzinfo:
    """Return the browser's time zone, or UTC if it is unknown."""
    # the browser may tell no zone, or one that this system does not know
    if not st.context.timezone:
        return UTC
    try:
        return ZoneInfo(st.context.timezone)
    except (KeyError, ValueError):
        return UTC


def _choose_filters(link: Permalink, facets: FilterOptions, panel: DeltaGenerator) -> Filters:
    owners = data.owners_of(facets)
    options = options_of(facets, owners)
    chosen = {
        parameter: link.choose_some(label, options[parameter], parameter=parameter, place=panel)
        for parameter, label in PARAMETERS.items()
    }
    narrowed = [
        f"{label.lower()} {code_span(', '.join(chosen[parameter]))}"
        for parameter, label in PARAMETERS.items()
        if chosen[parameter]
    ]
    if narrowed:
        st.markdown(f":material/filter_alt: Only {', '.join(narrowed)}.")
    return Filters(facets, chosen, owners)


def note_whole_runs(view: View) -> None:
    """Note that a filter of cases does not apply to what is shown next."""
    if view.filters.case_ids is not None:
        st.caption(
            "For whole runs, not per case: the filters kernel, family, dtype, tag and owner do "
            "not apply."
        )


def show_no_match(subject: str) -> None:
    st.info(f"No {subject} for these filters.", icon=":material/filter_alt_off:")
    st.button("Clear filters", on_click=clear_filters)


def show_first_steps(what_is_missing: str) -> NoReturn:
    """Show what is missing and the commands that create it, and end the view."""
    st.info(what_is_missing, icon=":material/play_circle:")
    st.code(
        "roofwatch run path/to/bench_file.py\nroofwatch ingest roofwatch-records", language=None
    )
    st.caption("To try it with real measurements first: `roofwatch demo`")
    st.stop()
