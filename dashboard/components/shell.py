"""The header of every view: screens, project, search, range, filters and runners in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.filters import PARAMETERS, Filters
from roofwatch.dashboard.logo import LOGO
from roofwatch.dashboard.navigation import VIEWS, file_of, path_of
from roofwatch.dashboard.runner_state import RunnerState, runner_state
from roofwatch.dashboard.wording import current_attribute, device_text, escaped, shortened
from roofwatch.db.queries import questions
from roofwatch.model.history import CommitRef
from roofwatch.model.stored_results import RunnerCoverage, TaggedCommit

_ASSETS = Path(__file__).parents[1] / "assets"
_shell = st.components.v2.component(
    "shell",
    html="<header class=rw-shell></header>",
    js=(_ASSETS / "shell.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
_LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="24" height="24" '
    f'aria-hidden="true">{LOGO}</svg><b>roofwatch</b>'
)
_DAYS = {"7d": 7, "30d": 30, "90d": 90}
_ALL = "all"
RANGE_AT_FIRST = "30d"
_RELEASES_LISTED = 20
_CHIPS = 6
_FOLLOWED_SEARCH = "followed_search"
_LONGEST_SEARCH = 200

Query = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class TimeRange:
    """The commits that a view shows."""

    name: str
    """In the address: `30d`, `all`, `v0.4.0..v0.5.0`, or `2026-09-01T10:00..2026-09-08T12:30`."""
    title: str
    since: datetime | None = None
    until: datetime | None = None
    is_dragged: bool = False
    """Chosen by dragging over a history, which then shows these dates alone."""

    def admits(self, moment: datetime) -> bool:
        if self.since is not None and moment < self.since:
            return False
        return self.until is None or moment <= self.until


def list_ranges(releases: Sequence[TaggedCommit], newest: datetime | None) -> list[TimeRange]:
    """List the ranges to choose from. Days count back from the newest commit, so that a link shows
    the same later.
    """
    ranges: list[TimeRange] = []
    for name, days in _DAYS.items():
        since = None
        if newest is not None:
            since = newest - timedelta(days=days)
        ranges.append(TimeRange(name, f"{days} days", since))
    # releases after the days: most readers ask about this week
    ranges.append(TimeRange(_ALL, "all time"))
    # the newest release is asked for most
    for base, head in reversed(list(pairwise(releases))):
        ranges.append(
            TimeRange(
                name=f"{base.name}..{head.name}",
                title=f"{base.name} to {head.name}",
                # the release itself is not what came after it
                since=base.commit.committed_at + timedelta(microseconds=1),
                until=head.commit.committed_at,
            )
        )
    listed_count = len(_DAYS) + 1 + _RELEASES_LISTED
    return ranges[:listed_count]


def dragged_range(name: str, zone: tzinfo) -> TimeRange | None:
    """Read two times in UTC, such as `2026-09-01T10:00..2026-09-08T12:30`; None if it is something
    else.
    """
    since_text, _, until_text = name.partition("..")
    try:
        since = datetime.fromisoformat(since_text).replace(tzinfo=UTC)
        until = datetime.fromisoformat(until_text).replace(tzinfo=UTC)
    except ValueError:
        return None
    if since >= until:
        return None
    pattern = "%-d %b %Y"
    if until - since < timedelta(days=3):
        pattern = "%-d %b %H:%M"
    first = since.astimezone(zone).strftime(pattern)
    last = until.astimezone(zone).strftime(pattern)
    return TimeRange(
        name,
        f"{first} to {last}",
        since,
        until,
        is_dragged=True,
    )


def state_of(runner: RunnerCoverage, now: datetime) -> RunnerState:
    """Return the state of a runner class by its newest clean run."""
    measured_count = sum(case.measurement_count for case in runner.cases)
    degraded_count = sum(case.degraded_count for case in runner.cases)
    degraded_share = degraded_count / max(measured_count, 1)
    return runner_state(
        runner.result_times,
        degraded_share,
        now,
    )


@dataclass(frozen=True)
class ShellHeader:
    """What the header shows of a view."""

    view: str
    project: str
    projects: Sequence[str]
    filters: Filters
    options: Mapping[str, Sequence[str]]
    """Options of the filters, by parameter."""
    ranges: Sequence[TimeRange]
    chosen_range: TimeRange
    runners: Sequence[RunnerCoverage]
    query: Query
    """Project, filters and range, which all screens share."""

    def address(self, view: str, query: Query) -> str:
        parameters = urlencode(query, doseq=True)
        return f"{path_of(view)}?{parameters}"

    def with_choice(self, parameter: str, value: str | Sequence[str]) -> str:
        """Return the address of this view with another choice; an empty one removes it."""
        # the parameter is replaced rather than added
        query = dict(self.query)
        query.pop(parameter, None)
        if value:
            query[parameter] = value
        return self.address(self.view, query)


def show_header(header: ShellHeader) -> None:
    """Draw the header, and go where a link, a choice or the search leads."""
    bar = _bar_html(header)
    _draw(header, bar)
    narrowed = _narrowed_html(header)
    if narrowed:
        st.html(f"<div class=rw-only>{narrowed}</div>")


@st.fragment
def _draw(header: ShellHeader, bar: str) -> None:
    """Draw the header alone again while somebody types."""
    component_state = st.session_state.get("shell", {})
    search = component_state.get("search") or {}
    # a search ends when somebody follows a link; resetting it from the browser would be a second
    # message, and of two messages at once the link can be lost
    typed = ""
    if search != st.session_state.get(_FOLLOWED_SEARCH):
        typed = str(search.get("text", ""))
    text = typed.strip()[:_LONGEST_SEARCH]
    results = _results_html(header, text)
    answer = _shell(
        key="shell",
        data={"bar": bar, "results": results},
        on_go_change=lambda: None,
        on_search_change=lambda: None,
    )
    if answer.go:
        st.session_state[_FOLLOWED_SEARCH] = search
        _go(answer.go)


def _go(address: str) -> None:
    parts = urlsplit(address)
    file = file_of(parts.path)
    if file is not None:
        parameters = parse_qs(parts.query)
        st.switch_page(file, query_params=parameters)


# --- the line


def _bar_html(header: ShellHeader) -> str:
    screens = ""
    for view, title in VIEWS.items():
        current = ""
        if view == header.view:
            current = ' aria-current="page"'
        address = escape(header.address(view, header.query))
        screens += f'<a href="{address}"{current}>{title}</a>'
    front_view = next(iter(VIEWS))
    front = escape(header.address(front_view, header.query))
    projects = _project_html(header)
    ranges = _range_html(header)
    chips = _chips_html(header)
    filters = _filters_html(header)
    return (
        f'<a class=logo href="{front}" aria-label="roofwatch, front page">{_LOGO}</a>'
        f'<nav aria-label="Screens">{screens}</nav>'
        f"{projects}"
        '<div class=rw-find><input type=search aria-label="Search" autocomplete=off '
        'placeholder="Kernel, commit, author, runner …"><kbd aria-hidden=true>/</kbd>'
        "<div class=rw-results aria-live=polite></div></div>"
        f"{ranges}"
        f'<div class=rw-chips aria-label="Runners">{chips}</div>'
        f"{filters}"
    )


def _project_html(header: ShellHeader) -> str:
    options = ""
    for project in header.projects:
        is_chosen = project == header.project
        options += _option(project, project, is_chosen=is_chosen)
    path = path_of(header.view)
    return _select("Project", f"{path}?project=", options)


def _range_html(header: ShellHeader) -> str:
    options = ""
    for choice in header.ranges:
        is_chosen = choice.name == header.chosen_range.name
        options += _option(choice.name, choice.title, is_chosen=is_chosen)
    address = header.with_choice("range", ())
    return _select("Time range", f"{address}&range=", options)


def _select(label: str, address: str, options: str) -> str:
    data_address = escape(address)
    return (
        f'<label><select aria-label="{label}" data-address="{data_address}">'
        f"{options}</select></label>"
    )


def _option(
    value: str,
    title: str,
    *,
    is_chosen: bool,
) -> str:
    selected = " selected" if is_chosen else ""
    text = escaped(shortened(title))
    return f'<option value="{escape(value)}"{selected}>{text}</option>'


def _chips_html(header: ShellHeader) -> str:
    """Write a link for each device that shows its runner classes only, or all again."""
    by_device: dict[str, list[RunnerCoverage]] = {}
    for runner in header.runners:
        device = device_text(runner.runner_class)
        by_device.setdefault(device, []).append(runner)
    first_devices = list(by_device.items())[:_CHIPS]
    chips = [_chip_html(header, device, runners) for device, runners in first_devices]
    further_count = len(by_device) - _CHIPS
    if further_count > 0:
        address = escape(header.address("machines", header.query))
        chips.append(f'<a class=rw-chip href="{address}">+{further_count}</a>')
    return "".join(chips)


def _chip_html(
    header: ShellHeader,
    device: str,
    runners: Sequence[RunnerCoverage],
) -> str:
    """Write one chip for a device, which may have several runner classes."""
    classes = [runner.runner_class for runner in runners]
    is_chosen = not set(header.filters.runner_classes).isdisjoint(classes)
    choice: Sequence[str] = classes
    # the chip of what is chosen shows all again
    if is_chosen:
        choice = ()
    address = escape(header.with_choice("class", choice))
    current = current_attribute(is_current=is_chosen)
    last_reported = max(runners, key=lambda runner: runner.result_times[0])
    state = state_of(last_reported, datetime.now(UTC))
    mark = f'<span class={state.word} aria-label="{state.word}">{state.symbol}</span>'
    title = escaped(state.explanation)
    name = escaped(device)
    return f'<a class=rw-chip href="{address}" title="{title}"{current}>{mark} {name}</a>'


def _filters_html(header: ShellHeader) -> str:
    lists = ""
    for parameter, label in PARAMETERS.items():
        chosen = header.filters.chosen.get(parameter, ())
        options = ""
        for value in header.options[parameter]:
            options += _option(value, value, is_chosen=value in chosen)
        if options:
            lists += (
                f"<label>{label}<select name={parameter} multiple size=5>{options}</select></label>"
            )
    hidden = ""
    # a form sends its own fields only: the rest is hidden in it
    for name in ("project", "range"):
        if name in header.query:
            query_value = escape(str(header.query[name]))
            hidden += f'<input type=hidden name={name} value="{query_value}">'
    path = path_of(header.view)
    return (
        f'<details class=rw-more><summary>Filter</summary><form action="{path}">'
        f"{hidden}{lists}<span></span><button>Apply</button></form></details>"
    )


def _narrowed_html(header: ShellHeader) -> str:
    """Write each filter that is set, as a link that removes it."""
    parts: list[str] = []
    for parameter, label in PARAMETERS.items():
        values = header.filters.chosen.get(parameter, ())
        if values:
            address = escape(header.with_choice(parameter, ()))
            names = escaped(shortened(", ".join(values)))
            title = label.lower()
            parts.append(f'<a href="{address}">{title} {names} ✕</a>')
    if not parts:
        return ""
    links = " ".join(parts)
    return f"Only {links}"


# --- search


def _results_html(header: ShellHeader, text: str) -> str:
    if not text:
        return ""
    matches = data.ask(
        questions.search,
        header.project,
        text,
    )
    rows = ""
    for kernel in matches.kernels:
        query = {"project": header.project, "kernel": kernel}
        rows += _result("kernel", kernel, header.address("roof", query))
    for case_id in matches.cases:
        kernel, _, _ = case_id.partition("/")
        query = {"project": header.project, "kernel": kernel, "case": case_id}
        rows += _result("case", case_id, header.address("roof", query))
    for measured in matches.commits:
        commit = measured.commit
        title = f"{commit.short_sha} {commit.subject} · {commit.author}"
        rows += _result("commit", title, _commit_address(header, commit))
    for release in matches.releases:
        address = _commit_address(header, release.commit)
        rows += _result("release", release.name, address)
    for runner_class in matches.runner_classes:
        query = {"project": header.project, "runner": runner_class}
        rows += _result("runner", runner_class, header.address("machines", query))
    if not rows:
        return (
            "<p>Nothing matches. Kernels, cases, commits, pull requests, authors, runners and "
            "releases are searched.</p>"
        )
    return rows


def _commit_address(header: ShellHeader, commit: CommitRef) -> str:
    query = {
        "project": header.project,
        # what is searched for may be old
        "range": _ALL,
        "commit": commit.sha,
    }
    return header.address("ledger", query)


def _result(kind: str, name: str, address: str) -> str:
    href = escape(address)
    title = escaped(shortened(name, length=120))
    return f'<a href="{href}"><small>{kind}</small><span>{title}</span></a>'
