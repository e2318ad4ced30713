"""Everything about one regression: what changed, why, how certain it is, and its triage."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.components.evidence import show_evidence
from roofwatch.dashboard.components.page import View, open_view, show_no_match
from roofwatch.dashboard.components.regressions import (
    in_order,
    kernel_markdown,
    owners_of,
    show_trail,
    show_triage,
    standing_marks,
    trend_of,
    worst_caption,
)
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    age_text,
    change_text,
    code_span,
    headline_text,
    percent,
    shortened,
    worst_change_point,
    written,
)
from roofwatch.db.auth.values import TriagedRegression
from roofwatch.db.bisections import Answer, Bisection
from roofwatch.db.queries import questions
from roofwatch.db.values import BisectionState, ChangePoint, Regression

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
            show_no_match("No regression matches the filters")
            return
        if not found:
            st.info("No changes were found in this project.", icon=":material/check:")
            st.caption("`roofwatch ingest` analyses what it stores; the Overview shows what is covered.")
            return
        one = _choose(view, found)
        _show_head(view, one)
        _show_suspects(one.regression)
        change = _choose_change(view, one.regression)
        show_evidence(view, change)
        _show_changes(view, one.regression)
        st.subheader("Bisection", anchor=False)
        regression_id = one.triage.regression_id
        _show_bisection(data.ask(questions.read_newest_bisection, regression_id), regression_id)
        st.subheader("Decisions", anchor=False)
        decided = data.ask(questions.list_decisions, view.project, regression_id)
        show_trail(decided, view.zone)


def _choose(view: View, found: Sequence[TriagedRegression]) -> TriagedRegression:
    """Choose a regression: open ones first, or that of a commit in the address."""
    ordered = in_order(one for one in found if one.is_open)
    ordered += in_order(one for one in found if not one.is_open)
    by_id = {one.regression_id: one for one in ordered}
    at_commit = st.query_params.get("commit")
    default = next((key for key, one in by_id.items() if one.regression.commit.sha == at_commit), None)
    chosen = view.link.choose(
        "Regression", list(by_id), parameter="regression", title=lambda key: _title(by_id[key]), default=default
    )
    return by_id[chosen]


def _title(one: TriagedRegression) -> str:
    regression = one.regression
    change = change_text(worst_change_point(regression))
    return f"{regression.commit.short_sha}  {regression.kernel}  {change}"


def _show_head(view: View, one: TriagedRegression) -> None:
    """Show what changed, in which commit, and the triage state."""
    regression, worst = one.regression, worst_change_point(one.regression)
    verdict = VERDICT_MARKS[regression.verdict]
    marks = [verdict.badge, *standing_marks(one)]
    st.markdown(f"**{kernel_markdown(regression.kernel)}** {' '.join(marks)}")
    what, who, decided = st.columns([6, 4, 3.5], gap="medium")
    with what.container(gap="xsmall"):
        st.subheader(headline_text(worst), anchor=False)
        st.caption(worst_caption(worst))
        st.text(regression.summary)
        _show_extent(regression)
    with who.container(gap="xsmall"):
        _show_commit(view, regression)
        with st.popover("Copy link", icon=":material/link:"):
            st.code(view.address_of("regression", regression=one.regression_id), language=None)
    with decided:
        show_triage(view.project, one, view.zone)


def _show_commit(view: View, regression: Regression) -> None:
    commit = regression.commit
    age = age_text(commit.committed_at, now=datetime.now(UTC))
    st.markdown(f"{view.sources.commit(commit.sha)} {written(commit.committed_at, view.zone)}, {age}")
    st.text(f"{shortened(commit.subject)}\n{shortened(commit.author)}")
    owners = owners_of(view, regression)
    if owners:
        st.text(f"Owner: {', '.join(owners)}")
    st.caption(f"Full SHA: {code_span(commit.sha)}")


def _show_extent(regression: Regression) -> None:
    parts = []
    if regression.family:
        parts.append(regression.family)
    if regression.typical_change is not None:
        spread = "" if regression.change_spread is None else f" ± {regression.change_spread:.1%}"
        parts.append(f"typically {regression.typical_change:+.1%}{spread}")
    if regression.recovered_at is not None:
        parts.append(f"back where it was at {regression.recovered_at.short_sha}")
    if parts:
        st.text("; ".join(parts))


def _show_suspects(regression: Regression) -> None:
    st.subheader("Why", anchor=False)
    if not regression.suspects:
        st.text(f"Cause: {regression.cause}. No causes were weighed.")
        return
    for one in regression.suspects:
        cause, weight, sentence = st.columns([1.2, 2, 8], vertical_alignment="center")
        cause.markdown(f"**{one.cause}** {one.weight:.0%}")
        weight.progress(one.weight)
        sentence.text(one.sentence)
    st.caption("Weights are the shares of all possible causes and add up to 100 %.")


def _choose_change(view: View, regression: Regression) -> ChangePoint:
    worst = worst_change_point(regression)
    by_key = {_key_of(change): change for change in [worst, *regression.change_points]}
    st.subheader("Evidence", anchor=False)
    key = view.link.choose(
        "Change point", list(by_key), parameter="change", title=lambda key: _change_title(by_key[key])
    )
    change = by_key[key]
    series = change.series
    st.text(change.evidence)
    on = f" on {code_span(series.runner_class)}" if series.runner_class else ""
    st.markdown(f"Base {code_span(change.previous_commit.short_sha)}, head {code_span(change.commit.short_sha)}{on}")
    links = st.container(horizontal=True)
    view.page_link("trends", "Trend", icon=":material/show_chart:", place=links, **trend_of(change))
    view.page_link(
        "compare",
        "All cases of both commits",
        icon=":material/compare_arrows:",
        place=links,
        by="commits",
        base=change.previous_commit.sha,
        head=change.commit.sha,
    )
    view.page_link(
        "kernel",
        "Roofline at this commit",
        icon=":material/memory:",
        place=links,
        commit=change.commit.sha,
        kernel=series.kernel,
    )
    return change


def _key_of(change: ChangePoint) -> str:
    series = change.series
    parts = (series.metric, series.case_id, series.implementation, series.runner_class)
    return "|".join((*parts, series.function, series.target, series.tensor, change.commit.short_sha))


def _change_title(change: ChangePoint) -> str:
    return f"{change_text(change)}  {change.series.definition.title}  {change.series.label}"


def _show_changes(view: View, regression: Regression) -> None:
    changes = regression.change_points
    st.subheader(f"All change points: {len(changes)}", anchor=False)
    show_table(
        changes,
        Column("open", lambda change: view.address_of("trends", **trend_of(change)), link="trend"),
        Column("change", change_text),
        Column("metric", lambda change: change.series.definition.title),
        Column("case", lambda change: change.series.case_id),
        Column("implementation", lambda change: change.series.implementation),
        Column("function or tensor", lambda change: change.series.function or change.series.tensor),
        Column("target", lambda change: change.series.target),
        Column("runner class", lambda change: change.series.runner_class),
        Column("verdict", lambda change: VERDICT_MARKS[change.verdict].text),
        Column("commit", lambda change: change.commit.short_sha),
        Column("against", lambda change: change.previous_commit.short_sha),
        Column("evidence", lambda change: change.evidence),
        omit_empty=True,
    )


def _show_bisection(bisection: Bisection | None, regression_id: UUID) -> None:
    """Show the state of the newest bisection, or how to request one."""
    if bisection is None:
        st.text("None requested. On a machine of this runner class, run:")
        st.code(f"roofwatch bisect path/to/bench_file.py --regression {regression_id}", language="bash")
        return
    st.text(f"{_BISECTION_MARKS[bisection.state]}, {bisection.progress.measurement_count} blocks measured")
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
        f"**{named}** with a probability of {answer.confidence:.1%}: {percent(answer.relative_change)} "
        f"(95 % interval {percent(low)} to {percent(high)}), {code_span(shortened(first.subject))}"
    )


if __name__ == "__main__":
    show()
