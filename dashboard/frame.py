"""What every view shares: the header with the project, the permalink, and what is said where there is nothing yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import streamlit as st

from dashboard import data
from dashboard.permalink import Permalink

_REMEMBERED_PROJECT = "project"


@dataclass(frozen=True)
class View:
    project: str
    link: Permalink


@contextmanager
def open_view(name: str, title: str, question: str) -> Iterator[View]:
    """Draw the header of a view and let the reader choose the project; its choices are in the address afterwards.

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
        yield View(project, link)
    finally:
        link.write()


def say_how_to_begin(what_is_missing: str) -> None:
    """Say what is missing and which commands bring it, and end the view."""
    st.info(what_is_missing, icon=":material/play_circle:")
    st.code("roofwatch run path/to/bench_file.py\nroofwatch ingest roofwatch-records", language="bash")
    st.caption("To see everything filled with real measurements first: `roofwatch demo`")
    st.stop()
