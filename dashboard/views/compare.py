"""Two commits side by side on every runner: releases, branches, pull requests, dates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from uuid import UUID

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.ci.messages import count_of
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.dashboard import data
from roofwatch.dashboard.comparison import (
    ComparedRow,
    Group,
    change_points_between,
    differences,
    rows_of,
    summarise,
)
from roofwatch.dashboard.components.compare_detail import show_detail
from roofwatch.dashboard.components.compare_files import offer_files
from roofwatch.dashboard.components.compare_tables import (
    forest_html,
    matrix_html,
    no_verdict_html,
)
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import (
    MAIN_FIGURE,
    View,
    open_view,
    show_first_steps,
)
from roofwatch.dashboard.revisions import Revisions, branches_of
from roofwatch.dashboard.wording import code_span, date_written, device_text, escaped, shortened
from roofwatch.db.errors import StoreError
from roofwatch.db.queries import questions
from roofwatch.model.history import CommitRef
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.stored_results import RunDetail

_SAME_RUNNER = "the same runner"
_MACHINES = ("runner_a", "runner_b")
_MOST_JUDGED = 400
"""Cases whose samples are read to draw intervals; a pair is always judged."""


def show() -> None:
    with open_view("compare", "A ↔ B", "What changed between two commits?") as view:
        revisions = _revisions(view)
        defaults = revisions.defaults()
        if defaults is None:
            show_first_steps(
                "Comparing takes two measured commits. Measure another, then store its record:"
            )
        with st.container(key="sides"):
            line = st.columns([5, 5, 2], vertical_alignment="bottom")
        default_base, default_head = defaults
        base_column, head_column, machines_column = line
        base = _choose(view, revisions, "A, base", "base", default_base, base_column)
        head = _choose(view, revisions, "B, head", "head", default_head, head_column)
        with machines_column:
            view.link.unfold("Two machines", lambda: _choose_machines(view), parameter="machines")
        sides = [view.link.asked_or_chosen(name) or _SAME_RUNNER for name in _MACHINES]
        if base is None or head is None:
            return
        # two machines were chosen, which no verdict can compare
        if _SAME_RUNNER not in sides:
            for name, side in zip(_MACHINES, sides, strict=True):
                view.link.keep(name, side)
            _show_machines(view, base, head, sides)
            return
        if base.sha == head.sha:
            st.info("A and B are the same commit: choose two, or two runners.")
            return
        _show_runners(view, base, head)


def _choose_machines(view: View) -> None:
    classes = filter(view.filters.admits_runner, view.filters.facets.runner_classes)
    options = [_SAME_RUNNER, *classes]
    for name, title in zip(_MACHINES, ("A on", "B on"), strict=True):
        view.link.choose(title, options, parameter=name)


def _revisions(view: View) -> Revisions:
    measured = data.ask(
        questions.list_commits,
        view.project,
        runner_classes=view.filters.runner_classes,
    )
    commits = [commit for commit in measured if view.filters.admits_commit(commit.sha)]
    releases = data.ask(questions.list_releases, view.project)
    return Revisions(
        commits=commits,
        releases=releases,
        branches=branches_of(commits, view.filters.facets.commits_by_branch),
        zone=view.zone,
    )


def _choose(
    view: View,
    revisions: Revisions,
    label: str,
    parameter: str,
    default: str,
    column: DeltaGenerator,
) -> CommitRef | None:
    """Choose a commit from a list, or by a name that is typed."""
    revision = view.link.asked_or_chosen(parameter) or default
    names = revisions.names
    # a name that is typed must be an option too, or Streamlit drops it
    if revision not in names:
        names = [revision, *names]
    key = f"{view.name}:{parameter}"
    st.session_state[key] = revision
    name = column.selectbox(
        label,
        names,
        key=key,
        format_func=revisions.title,
        accept_new_options=True,
        help="A release, a branch, a commit, `#123` or a date such as `2026-03-01`.",
    )
    view.link.keep(parameter, name)
    commit = revisions.find(name)
    if commit is None:
        st.warning(f"{code_span(shortened(name))}: no measured commit has this name.")
    return commit


def _sentence(view: View, base: CommitRef, head: CommitRef) -> str:
    base_date = date_written(base.committed_at, view.zone)
    head_date = date_written(head.committed_at, view.zone)
    base_sha = escaped(base.short_sha)
    head_sha = escaped(head.short_sha)
    text = f"{base_sha} of {base_date} → {head_sha} of {head_date}"
    count = head.first_parent_count - base.first_parent_count
    # by dates alone, nobody knows how many commits lie between
    if not base.is_ordered_by_time:
        text += f", {count_of(abs(count), 'commit')}"
    if count < 0:
        text += ". B is older than A: changes are stored from old to new, so swap the two."
    return text


# --- on every runner


def _show_runners(view: View, base: CommitRef, head: CommitRef) -> None:
    runs = data.ask(
        questions.read_runs_by_runner,
        view.project,
        base.sha,
        head.sha,
        runner_classes=view.filters.runner_classes,
    )
    measured: dict[str, tuple[RunDetail, RunDetail]] = {}
    for sides in runs:
        if sides.base and sides.head:
            measured[sides.runner_class] = sides.base, sides.head
    one_sided = [device_text(sides.runner_class) for sides in runs if sides.base is None]
    st.html(f"<p class='rw-soft rw-line'>{_sentence(view, base, head)}</p>")
    if not measured:
        st.info("No runner measured both commits.", icon=":material/compare_arrows:")
        return
    regressions = data.list_regressions(view.project)
    # the runner with most to see, unless another is asked for
    changes = change_points_between(base, head, regressions)
    change_counts = Counter(change.series.runner_class for change in changes)
    busiest = change_counts.most_common()
    default = next((name for name, _ in busiest if name in measured), None)
    chosen = view.link.read(
        "Runner",
        list(measured),
        parameter="runner",
        default=default,
    )
    # the runner with most to see may be another one later
    view.link.keep("runner", chosen)
    rows: dict[str, list[ComparedRow]] = {}
    for name, (base_run, head_run) in measured.items():
        rows[name] = _rows(
            view,
            base_run,
            head_run,
            is_judged=name == chosen,
        )
    choices = {
        "base": view.link.asked_or_chosen("base") or base.sha,
        "head": view.link.asked_or_chosen("head") or head.sha,
    }
    summaries = {name: summarise(rows_of_runner) for name, rows_of_runner in rows.items()}
    show_markup(matrix_html(view, summaries, chosen, **choices), key=MAIN_FIGURE)
    if one_sided:
        names = escape(", ".join(one_sided))
        st.html(f"<p class='rw-soft'>Only one of the two was measured on {names}.</p>")
    base_run, head_run = measured[chosen]
    _show_rows(view, rows[chosen], base_run, head_run, choices)


def _rows(
    view: View,
    base: RunDetail,
    head: RunDetail,
    *,
    is_judged: bool,
) -> list[ComparedRow]:
    base_id = UUID(base.summary.run_id)
    head_id = UUID(head.summary.run_id)
    pairs = data.ask(questions.read_imported_values, base_id, head_id)
    imported = [pair for pair in pairs if not pair.metric.startswith(SHARE_OF_STEP)]
    rows = rows_of(
        base,
        head,
        data.list_regressions(view.project),
        judgement=_judge(base, head, is_judged=is_judged),
        imported=imported,
    )
    return [row for row in rows if view.filters.admits_case(row.key.case_id)]


def _judge(
    base: RunDetail,
    head: RunDetail,
    *,
    is_judged: bool,
) -> PullRequestJudgement | None:
    """Judge the records of two runs as the command line does; None if their samples are no longer
    stored, or are too many and no pair.
    """
    # both sides were measured in one job
    is_pair = (
        base.pairing is not None
        and head.pairing is not None
        and base.pairing.pair_id == head.pairing.pair_id
    )
    is_small = is_judged and len(head.cases) <= _MOST_JUDGED
    if not is_pair and not is_small:
        return None
    # a run of another tool's values has no cases to judge
    if not head.cases:
        return None
    base_id = UUID(base.summary.run_id)
    head_id = UUID(head.summary.run_id)
    try:
        return data.judge_pair(base_id, head_id)
    except StoreError:
        return None


def _show_rows(
    view: View,
    rows: Sequence[ComparedRow],
    base: RunDetail,
    head: RunDetail,
    choices: Mapping[str, str],
) -> None:
    run_differences = differences(base, head)
    if run_differences:
        st.html(
            "<p class='rw-line'><b>No verdict between the two</b>: "
            f"{escaped('; '.join(run_differences))}. "
            "Ratios and shares of the roof still compare.</p>"
        )
    if all(row.group is Group.UNCHANGED for row in rows):
        st.html("<p class='rw-line'><b>Nothing changed.</b></p>")
    chosen = _chosen(view, rows)
    forest = forest_html(view, rows, chosen, **choices)
    if chosen is None:
        show_markup(forest, key="rows")
    else:
        rows_column, detail_column = st.columns([6, 5], gap="medium")
        with rows_column:
            show_markup(forest, key="rows")
        with detail_column, st.container(key="unfolded"):
            show_detail(view, chosen, base, head)
    name = f"{base.summary.commit.short_sha}-{head.summary.commit.short_sha}"
    offer_files(rows, name)


def _chosen(view: View, rows: Sequence[ComparedRow]) -> ComparedRow | None:
    """Return the row that the address unfolds, if any."""
    choices = {
        name: view.link.asked_or_chosen(name) for name in ("case", "implementation", "metric")
    }
    for row in rows:
        key = row.key
        values = {
            "case": key.case_id,
            "implementation": key.implementation,
            "metric": key.metric,
        }
        if values == choices:
            for name, value in values.items():
                view.link.keep(name, value)
            return row
    return None


# --- two machines


def _show_machines(
    view: View,
    base: CommitRef,
    head: CommitRef,
    sides: Sequence[str],
) -> None:
    base_runner, head_runner = sides
    base_run, head_run = data.ask(
        questions.read_runs_on,
        view.project,
        base.sha,
        head.sha,
        base_runner,
        head_runner,
    )
    rows = _rows(
        view,
        base_run,
        head_run,
        is_judged=False,
    )
    base_device = escape(device_text(base_runner))
    head_device = escape(device_text(head_runner))
    st.html(
        f"<h2>No verdict: {base_device} and {head_device} are different machines</h2>"
        f"<p class='rw-soft'>{_sentence(view, base, head)}</p>"
    )
    show_markup(no_verdict_html(rows), key=MAIN_FIGURE)
    offer_files(rows, "machines")


if __name__ == "__main__":
    show()
