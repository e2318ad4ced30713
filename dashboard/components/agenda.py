"""The agenda of a runner class, and where its minutes went."""

import streamlit as st

from roofwatch.ci.watching.agenda_summary import summarise_agenda
from roofwatch.dashboard import data
from roofwatch.dashboard.components.page import MAIN_FIGURE, View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import duration_text
from roofwatch.db.queries import questions

_NS_PER_S = 1e9


def show_agenda(view: View, runner_class: str) -> None:
    jobs = data.ask(questions.list_jobs, view.project)
    summary = summarise_agenda(jobs, runner_class)
    if not summary.open_jobs and not summary.spent:
        st.info("No runner of this class has sent an agenda.", icon=":material/event_note:")
        st.markdown("`roofwatch watch path/to/bench_file.py`, with the setting `server_url`")
        return
    st.header("Agenda", anchor=False)
    show_table(
        summary.open_jobs,
        Column("job", lambda job: str(job.kind)),
        Column("commit", lambda job: job.head_sha[:8]),
        Column("expected", lambda job: job.expected_s * _NS_PER_S, duration_text),
        Column("state", lambda job: "planned" if job.leased_until is None else "taken"),
        Column("why", lambda job: job.reason),
        key=MAIN_FIGURE,
    )
    st.header("Time of the last 30 days", anchor=False)
    show_table(
        summary.spent,
        Column("job", lambda spent: str(spent.kind)),
        Column("jobs", lambda spent: spent.job_count),
        Column("time", lambda spent: spent.spent_s * _NS_PER_S, duration_text),
        Column("share", lambda spent: spent.share, "{:.0%}".format),
    )
