"""What every view shares: the header with the project, the permalink, and what is said where there is nothing yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import streamlit as st

from dashboard import data
from dashboard.access.sign_in import show_sign_in
from dashboard.filters import PARAMETERS, Filters, options_of
from dashboard.permalink import Permalink
from dashboard.wording import code_span

_REMEMBERED_PROJECT = "project"
_REMEMBERED_FILTERS = "filters"


@dataclass(frozen=True)
class View:
    project: str
    link: Permalink
    filters: Filters
    """What the reader narrowed all views to: show only what these admit."""


@contextmanager
def open_view(name: str, title: str, question: str) -> Iterator[View]:
    """Draw the header of a view and let the reader choose the project and what to narrow it to; these choices are in
    the address afterwards, and follow the reader to other views.

    Where no project has runs yet, this says how to get some and the view ends.

    Args:
        name: Keeps the view's choices apart from those of others.
        title: Heading.
        question: What the view answers, in one line under the heading.
    """
    link = Permalink(name)
    heading, choice = st.columns([3, 1], vertical_alignment="bottom")
    with heading.container(gap=None):
        st.title(title, anchor=False)
        st.caption(question)
    projects = data.list_projects()
    if not projects:
        say_how_to_begin("No runs are stored yet. Measure a benchmark file, then store its record:")
    try:
        project = link.choose(
            "Project",
            projects,
            parameter="project",
            default=st.session_state.get(_REMEMBERED_PROJECT),
            place=choice,
        )
        # an unkeyed copy, since the choice itself is forgotten when another view opens
        st.session_state[_REMEMBERED_PROJECT] = project
        filters = _choose_filters(link, project)
        yield View(project, link, filters)
    finally:
        link.write()


def _choose_filters(link: Permalink, project: str) -> Filters:
    facets = data.read_facets(project)
    options = options_of(facets)
    remembered: dict[str, list[str]] = st.session_state.get(_REMEMBERED_FILTERS, {})
    line = st.container(horizontal=True, vertical_alignment="center")
    panel = line.popover("Filters", icon=":material/filter_alt:")
    chosen = {
        parameter: link.narrow(
            label, options[parameter], parameter=parameter, default=remembered.get(parameter, ()), place=panel
        )
        for parameter, label in PARAMETERS.items()
    }
    st.session_state[_REMEMBERED_FILTERS] = chosen
    filters = Filters(facets, chosen)
    narrowed = ", ".join(f"{label.lower()} {code_span(values)}" for label, values in filters.in_words())
    line.caption(f"Only {narrowed}." if narrowed else "Everything that was measured.")
    show_sign_in(line)
    return filters


def say_how_to_begin(what_is_missing: str) -> None:
    """Say what is missing and which commands bring it, and end the view."""
    st.info(what_is_missing, icon=":material/play_circle:")
    st.code("roofwatch run path/to/bench_file.py\nroofwatch ingest roofwatch-records", language="bash")
    st.caption("To see everything filled with real measurements first: `roofwatch demo`")
    st.stop()
