"""The header of every view: screens, project, search, range, filters and runners in one line."""

from collections.abc import Iterable, Mapping, Sequence
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
        is_early = self.since is not None and moment < self.since
        is_late = self.until is not None and moment > self.until
        return not is_early and not is_late


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
    return ranges[: len(_DAYS) + 1 + _RELEASES_LISTED]


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
    return runner_state(runner.result_times, degraded_count / max(measured_count, 1), now)


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
        return f"{path_of(view)}?{urlencode(query, doseq=True)}"

    def with_choice(self, parameter: str, value: str | Sequence[str]) -> str:
        """Return the address of this view with another choice; an empty one removes it."""
        # the parameter is replaced rather than added
        query = {name: chosen for name, chosen in self.query.items() if name != parameter}
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
    search = st.session_state.get("shell", {}).get("search") or {}
    # a search ends when somebody follows a link; resetting it from the browser would be a second
    # message, and of two messages at once the link can be lost
    typed = ""
    if search != st.session_state.get(_FOLLOWED_SEARCH):
        typed = str(search.get("text", ""))
    results = _results_html(header, typed.strip()[:_LONGEST_SEARCH])
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
        st.switch_page(file, query_params=parse_qs(parts.query))


# --- the line


def _bar_html(header: ShellHeader) -> str:
    screens: list[str] = []
    for view, title in VIEWS.items():
        current = ' aria-current="page"' if view == header.view else ""
        address = escape(header.address(view, header.query))
        screens.append(f'<a href="{address}"{current}>{title}</a>')
    front = escape(header.address(next(iter(VIEWS)), header.query))
    return (
        f'<a class=logo href="{front}" aria-label="roofwatch, front page">{_LOGO}</a>'
        f'<nav aria-label="Screens">{"".join(screens)}</nav>'
        f"{_project_html(header)}"
        '<div class=rw-find><input type=search aria-label="Search" autocomplete=off '
        'placeholder="Kernel, commit, author, runner …"><kbd aria-hidden=true>/</kbd>'
        "<div class=rw-results aria-live=polite></div></div>"
        f"{_range_html(header)}"
        f'<div class=rw-chips aria-label="Runners">{_chips_html(header)}</div>'
        f"{_filters_html(header)}"
    )


def _project_html(header: ShellHeader) -> str:
    options = (_option(project, project, {header.project}) for project in header.projects)
    address = f"{path_of(header.view)}?project="
    return _select("Project", address, options)


def _range_html(header: ShellHeader) -> str:
    options = [
        _option(choice.name, choice.title, {header.chosen_range.name}) for choice in header.ranges
    ]
    address = header.with_choice("range", ())
    return _select("Time range", f"{address}&range=", options)


def _select(label: str, address: str, options: Iterable[str]) -> str:
    return (
        f'<label><select aria-label="{label}" data-address="{escape(address)}">'
        f"{''.join(options)}</select></label>"
    )


def _option(value: str, title: str, chosen: Iterable[str]) -> str:
    selected = " selected" if value in chosen else ""
    return f'<option value="{escape(value)}"{selected}>{escaped(shortened(title))}</option>'


def _chips_html(header: ShellHeader) -> str:
    """Write a link for each device that shows its runner classes only, or all again."""
    by_device: dict[str, list[RunnerCoverage]] = {}
    for runner in header.runners:
        by_device.setdefault(device_text(runner.runner_class), []).append(runner)
    first_devices = list(by_device.items())[:_CHIPS]
    chips = [_chip_html(header, device, runners) for device, runners in first_devices]
    if len(by_device) > _CHIPS:
        address = escape(header.address("machines", header.query))
        chips.append(f'<a class=rw-chip href="{address}">+{len(by_device) - _CHIPS}</a>')
    return "".join(chips)


def _chip_html(header: ShellHeader, device: str, runners: Sequence[RunnerCoverage]) -> str:
    """Write one chip for a device, which may have several runner classes."""
    classes = [runner.runner_class for runner in runners]
    is_chosen = not set(header.filters.runner_classes).isdisjoint(classes)
    choice: Sequence[str] = classes
    # the chip of what is chosen shows all again
    if is_chosen:
        choice = ()
    address = escape(header.with_choice("class", choice))
    current = current_attribute(is_current=is_chosen)
    # the class that reported last
    state = state_of(max(runners, key=lambda runner: runner.result_times[0]), datetime.now(UTC))
    mark = f'<span class={state.word} aria-label="{state.word}">{state.symbol}</span>'
    return (
        f'<a class=rw-chip href="{address}" title="{escaped(state.explanation)}"{current}>'
        f"{mark} {escaped(device)}</a>"
    )


def _filters_html(header: ShellHeader) -> str:
    lists: list[str] = []
    for parameter, label in PARAMETERS.items():
        chosen = set(header.filters.chosen.get(parameter, ()))
        options = [_option(value, value, chosen) for value in header.options[parameter]]
        if options:
            lists.append(
                f"<label>{label}<select name={parameter} multiple size=5>"
                f"{''.join(options)}</select></label>"
            )
    # a form sends its own fields only: the rest is hidden in it
    remaining = {name: header.query[name] for name in ("project", "range") if name in header.query}
    hidden = "".join(
        f'<input type=hidden name={name} value="{escape(str(value))}">'
        for name, value in remaining.items()
    )
    return (
        f'<details class=rw-more><summary>Filter</summary><form action="{path_of(header.view)}">'
        f"{hidden}{''.join(lists)}<span></span><button>Apply</button></form></details>"
    )


def _narrowed_html(header: ShellHeader) -> str:
    """Write each filter that is set, as a link that removes it."""
    parts: list[str] = []
    for parameter, label in PARAMETERS.items():
        values = header.filters.chosen.get(parameter, ())
        if values:
            address = escape(header.with_choice(parameter, ()))
            names = escaped(shortened(", ".join(values)))
            parts.append(f'<a href="{address}">{label.lower()} {names} ✕</a>')
    if parts:
        return f"Only {' '.join(parts)}"
    return ""


# --- search


def _results_html(header: ShellHeader, text: str) -> str:
    if not text:
        return ""
    matches = data.ask(questions.search, header.project, text)
    shared = {"project": header.project}
    rows: list[str] = []
    for kernel in matches.kernels:
        address = header.address("roof", {**shared, "kernel": kernel})
        rows.append(_result("kernel", kernel, address))
    for case_id in matches.cases:
        kernel = case_id.partition("/")[0]
        address = header.address("roof", {**shared, "kernel": kernel, "case": case_id})
        rows.append(_result("case", case_id, address))
    for measured in matches.commits:
        commit = measured.commit
        title = f"{commit.short_sha} {commit.subject} · {commit.author}"
        rows.append(_result("commit", title, _commit_address(header, commit)))
    rows.extend(
        _result("release", release.name, _commit_address(header, release.commit))
        for release in matches.releases
    )
    for runner_class in matches.runner_classes:
        address = header.address("machines", {**shared, "runner": runner_class})
        rows.append(_result("runner", runner_class, address))
    if rows:
        return "".join(rows)
    return (
        "<p>Nothing matches. Kernels, cases, commits, pull requests, authors, runners and releases "
        "are searched.</p>"
    )


def _commit_address(header: ShellHeader, commit: CommitRef) -> str:
    # in all ranges: what is searched for may be old
    query = {"project": header.project, "range": _ALL, "commit": commit.sha}
    return header.address("ledger", query)


def _result(kind: str, name: str, address: str) -> str:
    return (
        f'<a href="{escape(address)}"><small>{kind}</small>'
        f"<span>{escaped(shortened(name, length=120))}</span></a>"
    )
