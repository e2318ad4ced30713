"""Everything about one regression: what changed, why, how certain it is, and its triage."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pandas as pd
import streamlit as st

from roofwatch.ci.ab.prediction import changes_of, functions_of, predict_steps
from roofwatch.ci.messages import on_one_line
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.trend import trend_figure
from roofwatch.dashboard.components.evidence import show_evidence
from roofwatch.dashboard.components.page import MAIN_FIGURE, View, open_view, show_no_match
from roofwatch.dashboard.components.regressions import (
    in_order,
    kernel_text,
    owners_of,
    show_trail,
    show_triage,
    standing_marks,
    trend_of,
)
from roofwatch.dashboard.components.table import Column, grouped, show_table
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    age_text,
    certainty_text,
    change_text,
    code_span,
    headline_text,
    percent,
    place_text,
    shortened,
    written,
)
from roofwatch.db.bisections import Bisection
from roofwatch.db.queries import questions
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.triage import Answer, BisectionState, TriagedRegression

_TREND_PX = 260
_ROWS_UNFOLDED, _ROWS_PX = 8, 320
_BISECTION_MARKS = {
    BisectionState.REQUESTED: "○ waits for a runner",
    BisectionState.RUNNING: "◐ running",
    BisectionState.FOUND: "✓ found",
    BisectionState.NARROWED: "✓ narrowed to several commits",
    BisectionState.UNDECIDED: "? undecided: time budget spent",
    BisectionState.NO_CHANGE: "= both ends are equal",
    BisectionState.FAILED: "✕ failed",
}


def show() -> None:
    with open_view("regression", "Regression", "What changed, in which commit, and why.") as view:
        found = [
            one
            for one in data.ask(questions.list_triaged, view.project)
            if view.filters.admits_regression(one.regression)
        ]
        if not found and view.filters.is_narrow:
            show_no_match(view, "regressions")
            return
        if not found:
            st.info("No changes were found in this project.", icon=":material/check:")
            st.caption(
                "`roofwatch ingest` analyses what it stores; the Overview shows what is covered."
            )
            return
        one = _choose(view, found)
        what, figure = st.columns([6, 7], gap="medium")
        change = _pinned_change(view, one.regression)
        with what:
            _show_head(view, one)
            _show_suspects(one.regression)
            _show_step_cost(view, one.regression, change)
            _show_standing(view, one)
        with figure:
            _show_trend(view, one.regression, change)
        _show_changes(view, one.regression, change)
        show_evidence(view, change)
        st.header("Bisection", anchor=False)
        regression_id, found_changes = one.triage.regression_id, one.regression.change_points
        bisection = data.ask(questions.read_newest_bisection, regression_id)
        if bisection is None and all(one.series.is_imported for one in found_changes):
            st.text("Not bisected: a bisection runs a benchmark file, which roofwatch init writes.")
        else:
            _show_bisection(bisection, regression_id)
        st.header("Decisions", anchor=False)
        decided = data.ask(questions.list_decisions, view.project, regression_id)
        show_trail(decided, view.zone)


def _choose(view: View, found: Sequence[TriagedRegression]) -> TriagedRegression:
    """Choose a regression: open ones first, or that of a commit in the address."""
    ordered = in_order(one for one in found if one.is_open)
    ordered += in_order(one for one in found if not one.is_open)
    by_id = {one.regression_id: one for one in ordered}
    at_commit = st.query_params.get("commit")
    default = next(
        (key for key, one in by_id.items() if one.regression.commit.sha == at_commit), None
    )
    chosen = view.link.choose(
        "Regression",
        list(by_id),
        parameter="regression",
        title=lambda key: _title(by_id[key]),
        default=default,
    )
    return by_id[chosen]


def _title(one: TriagedRegression) -> str:
    regression = one.regression
    return (
        f"{regression.range_text}  {kernel_text(regression.kernel)}  "
        f"{headline_text(regression.change_points[0])}"
    )


def _show_head(view: View, one: TriagedRegression) -> None:
    """Show what changed, how sure it is, and in which commit."""
    regression, best = one.regression, one.regression.change_points[0]
    title = f"{kernel_text(regression.kernel)} {headline_text(best)}"
    st.set_page_config(page_title=f"{shortened(title)} · Regression · roofwatch")
    marks = [VERDICT_MARKS[regression.verdict], *standing_marks(one)]
    st.header(f"{code_span(kernel_text(regression.kernel))} {headline_text(best)}", anchor=False)
    st.markdown(" ".join(mark.badge for mark in marks))
    st.text(on_one_line(regression.summary))
    _show_extent(regression)
    st.caption(f"Best evidence: {code_span(certainty_text(regression))}")
    _show_commit(view, regression)


def _show_commit(view: View, regression: Regression) -> None:
    commit = regression.commit
    age = age_text(commit.committed_at, now=datetime.now(UTC))
    when = f"{written(commit.committed_at, view.zone)}, {age}"
    if regression.change_points[0].is_gradual:
        st.markdown(
            f"Drifts since {when}. No single commit is the cause; it begins near "
            f"{code_span(commit.short_sha)}."
        )
    elif regression.is_range:
        count = regression.commit_count
        which = "a commit" if count is None else f"one of {count} commits"
        is_imported = regression.change_points[0].series.is_imported
        how = "" if is_imported else "; a bisection finds the one"
        st.markdown(
            f"In {which} after "
            f"{view.sources.commit(regression.base.sha)}, up to {view.sources.commit(commit.sha)}, "
            f"{when}. No commit between them was measured{how}."
        )
    else:
        subject, author = shortened(commit.subject), shortened(commit.author)
        st.markdown(
            f"{view.sources.commit(commit.sha)} {when}  \n{code_span(subject)} by "
            f"{code_span(author)}"
        )
    owners = owners_of(view, regression)
    if owners:
        st.text(f"Owner: {', '.join(owners)}")


def _show_extent(regression: Regression) -> None:
    """Show on how many series, by how much, and whether it ended, unless the summary says so."""
    typical = regression.typical_change
    spread = "" if regression.change_spread is None else f" ± {regression.change_spread:.1%}"
    parts = [
        regression.family,
        "" if typical is None else f"typically {typical:+.1%}{spread}",
        regression.ended,
    ]
    extent = "; ".join(part for part in parts if part and part not in regression.summary)
    if extent:
        st.text(on_one_line(extent))


def _show_suspects(regression: Regression) -> None:
    st.header("Why", anchor=False)
    if not regression.suspects:
        st.text(f"Cause: {regression.cause}. No causes were weighed.")
        return
    for one in regression.suspects:
        cause, weight, sentence = st.columns([2, 1, 6], vertical_alignment="center")
        cause.markdown(f"**{one.cause}** {one.weight:.0%}")
        weight.progress(one.weight)
        sentence.text(on_one_line(one.sentence))


def _show_standing(view: View, one: TriagedRegression) -> None:
    st.caption(f"Full SHA: {code_span(one.regression.commit.sha)}")
    show_triage(view.project, one, view.zone)
    with st.popover("Copy link", icon=":material/link:"):
        st.code(view.address_of("regression", regression=one.regression_id), language=None)


def _show_step_cost(view: View, regression: Regression, change: ChangePoint) -> None:
    """Show what the kernel costs the step of a workload on the runner of a change, if its share is
    known.
    """
    of_kernel = [
        one for one in regression.change_points if one.series.kernel == change.series.kernel
    ]
    changes = list(
        changes_of(
            one for one in of_kernel if one.series.runner_class == change.series.runner_class
        )
    )
    shares = (
        data.ask(questions.list_step_shares, view.project, change.series.runner_class)
        if changes
        else []
    )
    if shares:
        functions = data.ask(questions.list_functions, view.project, change.series.kernel)
        for one in predict_steps(changes, functions_of(functions), shares)[:1]:
            text = (
                f"Predicted: {percent(one.step_change)} ({percent(one.low)} to "
                f"{percent(one.high)}) of a step of "
                f"{one.workload_case_id} {one.workload_implementation}; {one.share:.1%} of it is "
                f"{one.kernel}."
            )
            st.text(on_one_line(text))


def _show_trend(view: View, regression: Regression, change: ChangePoint) -> None:
    """Show the series of a change point, and links to where more of it is shown."""
    series = change.series
    question = TrendQuestion(
        view.project, (series,), kept_commits=(change.commit.sha, change.previous_commit.sha)
    )
    trend = data.ask(questions.read_trend, question)
    if trend.series:
        figure = trend_figure(
            trend.series, [regression], view.zone, places=trend.places, values_px=_TREND_PX
        )
        st.plotly_chart(
            figure, key=MAIN_FIGURE, alt=f"{series.definition.title} of {series.label} over commits"
        )
    else:
        st.info("This series has no runs outside pairs.", icon=":material/show_chart:")
    st.text(on_one_line(change.evidence))
    links = st.container(horizontal=True)
    base, head, runner_class = change.previous_commit.sha, change.commit.sha, series.runner_class
    view.page_link("roof", "Trend", icon=":material/show_chart:", place=links, **trend_of(change))
    view.compare_link(
        "Compare commits", base=base, head=head, runner_class=runner_class, place=links
    )
    asked = {
        "commit": head,
        "kernel": series.kernel,
        **({"runner": runner_class} if runner_class else {}),
    }
    title = "Kernel at this commit" if series.is_imported else "Roofline at this commit"
    view.page_link("roof", title, icon=":material/memory:", place=links, **asked)


def _pinned_change(view: View, regression: Regression) -> ChangePoint:
    """Return the change point that the reader chose in the table, else the one with the best
    evidence.
    """
    by_key = {_key_of(change): change for change in regression.change_points}
    pinned = view.link.pin(parameter="change", picked=None, options=by_key)
    return regression.change_points[0] if pinned is None else by_key[pinned]


def _key_of(change: ChangePoint) -> str:
    series = change.series
    parts = (series.metric, series.case_id, series.implementation, series.runner_class)
    return "|".join(
        (*parts, series.function, series.target, series.tensor, change.commit.short_sha)
    )


def _show_changes(view: View, regression: Regression, chosen: ChangePoint) -> None:
    """Show one row per series and one column per runner or target; a click on a change shows its
    evidence.
    """
    changes = regression.change_points
    names = {one.series: place_text(one.series) for one in changes}
    if len(set(names.values())) < len({(one.runner_class, one.target) for one in names}):
        names = {
            one: on_one_line(one.runner_class or one.target) for one in names
        }  # two classes of one device
    rows = grouped(
        changes, lambda one: (one.series.definition.title, replace(one.series, target="").label)
    )
    places = list(dict.fromkeys(names.values()))
    cells = {
        place: [
            next((one for one in own if names[one.series] == place), None) for own in rows.values()
        ]
        for place in places
    }
    key = f"changes:{regression.commit.sha}:{regression.kernel}:{regression.verdict}"

    def choose() -> None:
        for row, place in st.session_state[key]["selection"]["cells"]:
            change = cells.get(place, {row: None})[row]
            if change is not None:
                view.link.choose_next("change", _key_of(change))

    st.header("Evidence", anchor=False)
    st.dataframe(
        pd.DataFrame(
            {
                "metric": [title for title, _ in rows],
                "series": [on_one_line(label) for _, label in rows],
                **{place: [_cell_text(one, chosen) for one in own] for place, own in cells.items()},
            }
        ),
        key=key,
        hide_index=True,
        height="content" if len(rows) <= _ROWS_UNFOLDED else _ROWS_PX,
        on_select=choose,
        selection_mode="single-cell",
        alt="Change of each series on each runner",
    )
    where = code_span(chosen.series.runner_class or chosen.series.target)
    st.caption(
        f"Click a change to see its evidence. Below (▶): {code_span(chosen.series.label)} on "
        f"{where}, "
        f"base {code_span(chosen.previous_commit.short_sha)}, head "
        f"{code_span(chosen.commit.short_sha)}."
    )


def _cell_text(change: ChangePoint | None, chosen: ChangePoint) -> str:
    if change is None:
        return ""
    doubt = " throttled" if change.degraded_by else ""
    return f"{'▶ ' if change == chosen else ''}{change_text(change)}{doubt}"


def _show_bisection(bisection: Bisection | None, regression_id: UUID) -> None:
    """Show the state of the newest bisection, or how to request one."""
    if bisection is None:
        st.text("Not bisected. Run on this runner class:")
        st.code(
            f"roofwatch bisect path/to/bench_file.py --regression {regression_id}", language=None
        )
        return
    st.text(
        f"{_BISECTION_MARKS[bisection.state]}, {bisection.progress.measurement_count} blocks "
        f"measured"
    )
    if bisection.note:
        st.text(bisection.note)
    if bisection.answer is not None:
        _show_answer(bisection.answer)
    commits = bisection.progress.commits
    if not commits:
        return
    show_table(
        commits,
        Column("commit", lambda one: one.commit.short_sha),
        Column("probability", lambda one: one.probability, "{:.1%}".format),
        Column("status", lambda one: f"{one.status}: {one.reason}" if one.reason else one.status),
        Column("pairs of blocks", lambda one: one.pair_count),
        Column("against the good end", lambda one: one.relative_change, percent),
        Column("subject", lambda one: one.commit.subject),
        Column("author", lambda one: one.commit.author),
    )


def _show_answer(answer: Answer) -> None:
    first, last = answer.first, answer.last
    named = code_span(first.short_sha)
    if last != first:
        named += f" to {code_span(last.short_sha)}"
    low, high = answer.relative_interval
    st.markdown(
        f"**{named}** with a probability of {answer.confidence:.1%}: "
        f"{percent(answer.relative_change)} "
        f"(95 % interval {percent(low)} to {percent(high)}), {code_span(shortened(first.subject))}"
    )


if __name__ == "__main__":
    show()
