"""What every view shares: the header with the project, the permalink, and what is said where there is nothing yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard import data
from roofwatch.dashboard.access.sign_in import show_sign_in
from roofwatch.dashboard.filters import PARAMETERS, Filters, options_of
from roofwatch.dashboard.permalink import Permalink
from roofwatch.dashboard.reader import reader_zone
from roofwatch.dashboard.source_links import SourceLinks
from roofwatch.dashboard.wording import code_span
from roofwatch.dashboard.zone import zone_title
from roofwatch.db.queries.filter_option_values import Facets
from roofwatch.settings import load_settings

MAIN_FIGURE = "main-figure"
"""The key of what a reader of a view came for, a figure or the container of a table. How long it takes is measured."""
READING = "Reading what is stored …"
"""What a view says of itself until all of it is there."""
_REMEMBERED_PROJECT = "project"
_REMEMBERED_FILTERS = "filters"


@dataclass(frozen=True)
class View:
    project: str
    link: Permalink
    filters: Filters
    """What the reader narrowed all views to: show only what these admit."""
    zone: tzinfo
    """Of the reader, which the header names."""
    sources: SourceLinks


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
    zone = reader_zone()
    heading, choices = st.columns([3, 2], vertical_alignment="bottom")
    with _heading(heading, title, question, zone):
        # one question tells of the project and of all others too
        asked = st.query_params.get("project", st.session_state.get(_REMEMBERED_PROJECT))
        facets = data.read_facets(asked)
        projects = facets.projects
        if not projects:
            say_how_to_begin("No runs are stored yet. Measure a benchmark file, then store its record:")
        line = choices.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom")
        try:
            panel = line.popover("Filters", icon=":material/filter_alt:")
            project = link.choose(
                "Project",
                projects,
                parameter="project",
                default=st.session_state.get(_REMEMBERED_PROJECT),
                place=line,
            )
            # an unkeyed copy, since the choice itself is forgotten when another view opens
            st.session_state[_REMEMBERED_PROJECT] = project
            if project != (asked or projects[0]):
                facets = data.read_facets(project)
            filters = _choose_filters(link, facets, panel)
            show_sign_in(line)
            sources = SourceLinks.of_project(load_settings().repository_url, project)
            yield View(project, link, filters, zone, sources)
        finally:
            link.write()


@contextmanager
def _heading(place: DeltaGenerator, title: str, question: str, zone: tzinfo) -> Iterator[None]:
    """Over everything that a view shows. It says that the view is being read until the view has ended, in a line that
    is there anyway: nothing below moves when it goes.
    """
    with place.container(gap=None):
        st.title(title, anchor=False)
        line = st.empty()
    line.caption(f"{question} :material/hourglass_top: {READING}")
    try:
        yield
    finally:
        line.caption(f"{question} Times: {zone_title(zone)}.")


def _choose_filters(link: Permalink, facets: Facets, panel: DeltaGenerator) -> Filters:
    owners = data.owners_of(facets)
    options = options_of(facets, owners)
    remembered: dict[str, list[str]] = st.session_state.get(_REMEMBERED_FILTERS, {})
    chosen = {
        parameter: link.narrow(
            label, options[parameter], parameter=parameter, default=remembered.get(parameter, ()), place=panel
        )
        for parameter, label in PARAMETERS.items()
    }
    st.session_state[_REMEMBERED_FILTERS] = chosen
    filters = Filters(facets, chosen, owners)
    narrowed = ", ".join(f"{label.lower()} {code_span(values)}" for label, values in filters.in_words())
    if narrowed:
        st.markdown(f":material/filter_alt: Only {narrowed}.")
    return filters


def say_how_to_begin(what_is_missing: str) -> None:
    """Say what is missing and which commands bring it, and end the view."""
    st.info(what_is_missing, icon=":material/play_circle:")
    st.code("roofwatch run path/to/bench_file.py\nroofwatch ingest roofwatch-records", language="bash")
    st.caption("To see everything filled with real measurements first: `roofwatch demo`")
    st.stop()
