"""One kernel in one run: how far from the roof, which implementation wins, what the compilers made of it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from collector.metrics import METRICS, metric
from collector.part import Outcome
from dashboard import data
from dashboard.charts import roofline_figure
from dashboard.comparison import changed_facts
from dashboard.frame import View, open_view, say_how_to_begin
from dashboard.table import show_table
from dashboard.wording import code_span, commit_text, natural_order, outcome_text
from db.values import CommitRef, MeasuredCase, RunDetail, StaticRow

_HASH_LENGTH = 12
_NOT_CHANGED = {"same machine code", "first commit"}
_STATIC_COLUMNS = {
    "registers": "registers",
    "spilled_registers": "spilled",
    "local_bytes": "local (B)",
    "shared_bytes": "shared (B)",
    "code_bytes": "code (B)",
}


def show() -> None:
    with open_view("kernel", "Kernel", "How far one kernel is from the roof, and what it compiles to.") as view:
        commits = sorted(data.list_commits(view.project))
        if not commits:
            say_how_to_begin("This project has no runs yet. Measure a benchmark file, then store its record:")
        choices = st.container(horizontal=True)
        detail, previous = _choose_run(view, commits, choices)
        kernels = sorted({case.kernel for case in detail.cases})
        if not kernels:
            st.info("The run of this commit has no cases: choose another commit.", icon=":material/filter_alt:")
            return
        kernel = view.link.choose("Kernel", kernels, parameter="kernel", place=choices)
        st.caption(
            f"Measured on {code_span(detail.summary.runner_class)}, {detail.summary.started_at:%Y-%m-%d %H:%M %Z}"
        )
        cases = [case for case in detail.cases if case.kernel == kernel]
        _show_roofline(cases, detail)
        _show_times(cases)
        _show_static(cases, detail, previous)
        _show_accuracy(cases)


def _choose_run(view: View, commits: Sequence[CommitRef], place: DeltaGenerator) -> tuple[RunDetail, RunDetail | None]:
    """The latest run of the chosen commit, and that of the commit measured before it."""
    by_sha = {commit.sha: commit for commit in reversed(commits)}
    sha = view.link.choose(
        "Commit", list(by_sha), parameter="commit", title=lambda sha: commit_text(by_sha[sha]), place=place
    )
    position = commits.index(by_sha[sha])
    detail = data.read_run(view.project, sha)
    previous = data.read_run(view.project, commits[position - 1].sha) if position else None
    return detail, previous


def _show_roofline(cases: Sequence[MeasuredCase], detail: RunDetail) -> None:
    st.subheader("Roofline", anchor=False)
    if not any(case.outcome is Outcome.OK for case in cases):
        st.info("No case of this kernel was measured in this run.", icon=":material/show_chart:")
        return
    st.plotly_chart(roofline_figure(cases, detail.ceilings), key="roofline")
    st.caption(
        "Grey lines are this device's ceilings, measured in the same run; how far a point lies below its line is the "
        "factor that could be won, and above the dram line the data stayed in the cache. FLOP and bytes are what the "
        "case at least needs, not what the hardware counted."
    )


def _show_times(cases: Sequence[MeasuredCase]) -> None:
    st.subheader("Best implementation by case", anchor=False)
    rows = []
    implementations = sorted({case.implementation for case in cases})
    for case_id in sorted({case.case_id for case in cases}, key=natural_order):
        own = {case.implementation: case for case in cases if case.case_id == case_id}
        timed = [case for case in own.values() if case.median_ns is not None]
        best = min(timed, key=lambda case: case.median_ns or 0.0, default=None)
        rows.append(
            {
                "case": case_id,
                "best": best.implementation if best else "none was measured",
                "utilisation": best.utilisation if best else None,
                "bound": (best.bound if best else None) or "",
                **{f"{name}, time": _time_text(own.get(name)) for name in implementations},
            }
        )
    show_table(pd.DataFrame(rows), formats={"utilisation": metric("utilisation").format})


def _time_text(case: MeasuredCase | None) -> str:
    if case is None:
        return "not in this run"
    return outcome_text(case.outcome) if case.median_ns is None else metric("median_ns").format(case.median_ns)


def _show_static(cases: Sequence[MeasuredCase], detail: RunDetail, previous: RunDetail | None) -> None:
    st.subheader("Compiled code by target", anchor=False)
    case_ids = {case.case_id for case in cases}
    rows = [row for row in detail.static_rows if row.case_id in case_ids]
    if not rows:
        st.text("No compiled code is stored for this kernel in this run.")
        return
    earlier = {_static_key(row): row for row in (previous.static_rows if previous else ())}
    words = {_static_key(row): changed_facts(earlier.get(_static_key(row)), row) for row in rows}
    if previous is None:
        words = dict.fromkeys(words, "first commit")
    rows.sort(key=lambda row: (words[_static_key(row)] in _NOT_CHANGED, *map(natural_order, _static_key(row))))
    frame = pd.DataFrame(
        {
            "target": [row.target for row in rows],
            "case": [row.case_id for row in rows],
            "implementation": [row.implementation for row in rows],
            "function": [row.function for row in rows],
            "changed": [_marked(words[_static_key(row)]) for row in rows],
            "outcome": [outcome_text(row.outcome) for row in rows],
            **{
                title: pd.array([getattr(row, key) for row in rows], dtype="Int64")
                for key, title in _STATIC_COLUMNS.items()
            },
            "code hash": [(row.code_hash or "")[:_HASH_LENGTH] for row in rows],
            "configuration": [", ".join(f"{k}={v}" for k, v in row.configuration.items()) for row in rows],
        }
    )
    if frame["implementation"].nunique() == 1:
        frame = frame.drop(columns="implementation")
    show_table(
        frame,
        columns={title: st.column_config.Column(help=METRICS[key].title) for key, title in _STATIC_COLUMNS.items()},
    )
    if previous is not None:
        st.caption(
            f"*changed* is against {code_span(commit_text(previous.summary.commit))}, the commit measured before this "
            "one. Equal hashes are equal machine code."
        )


def _static_key(row: StaticRow) -> tuple[str, str, str, str]:
    return row.case_id, row.implementation, row.function, row.target


def _marked(words: str) -> str:
    return words if words in _NOT_CHANGED else f"◆ {words}"


def _show_accuracy(cases: Sequence[MeasuredCase]) -> None:
    st.subheader("Accuracy against the float64 reference", anchor=False)
    checked = [case for case in cases if case.accuracy_outcome is not None]
    if not checked:
        st.text("No accuracy check is stored for this kernel in this run.")
        return
    error = metric("rmse_ratio")
    show_table(
        pd.DataFrame(
            {
                "case": [case.case_id for case in checked],
                "implementation": [case.implementation for case in checked],
                "outcome": [outcome_text(case.accuracy_outcome) for case in checked if case.accuracy_outcome],
                error.title: [case.rmse_ratio for case in checked],
            }
        ),
        formats={error.title: error.format},
    )


if __name__ == "__main__":
    show()
