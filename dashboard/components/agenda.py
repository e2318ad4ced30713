"""The agenda of a runner class, and where its minutes went."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.components.page import MAIN_FIGURE, View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import duration_text
from roofwatch.db.queries import questions
from roofwatch.model.agenda import JobKind, StoredJob

_NS_PER_S = 1e9


@dataclass(frozen=True)
class SpentOnKind:
    """The jobs of one kind that were done."""

    kind: JobKind
    job_count: int
    spent_s: float


def show_agenda(view: View, runner_class: str) -> None:
    jobs = [
        job
        for job in data.ask(questions.list_jobs, view.project)
        if job.runner_class == runner_class
    ]
    if not jobs:
        st.info("No runner of this class has sent an agenda.", icon=":material/event_note:")
        st.markdown("`roofwatch watch path/to/bench_file.py`, with the setting `server_url`")
        return
    st.header("Agenda", anchor=False)
    show_table(
        [job for job in jobs if job.finished_at is None],
        Column("job", lambda job: str(job.kind)),
        Column("commit", lambda job: job.head_sha[:8]),
        Column("expected", lambda job: job.expected_s * _NS_PER_S, duration_text),
        Column("state", lambda job: "planned" if job.leased_until is None else "taken"),
        Column("why", lambda job: job.reason),
        key=MAIN_FIGURE,
    )
    st.header("Time of the last 30 days", anchor=False)
    show_table(
        spent_by_kind(jobs),
        Column("job", lambda spent: str(spent.kind)),
        Column("jobs", lambda spent: spent.job_count),
        Column("time", lambda spent: spent.spent_s * _NS_PER_S, duration_text),
    )


def spent_by_kind(jobs: Sequence[StoredJob]) -> list[SpentOnKind]:
    """Add up what was done, the most expensive kind first."""
    seconds: dict[JobKind, list[float]] = defaultdict(list)
    for job in jobs:
        if job.spent_s is not None:
            seconds[job.kind].append(job.spent_s)
    totals = [SpentOnKind(kind, len(spent), sum(spent)) for kind, spent in seconds.items()]
    return sorted(totals, key=lambda total: -total.spent_s)
