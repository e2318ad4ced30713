"""A card for each physical machine: its month, ceilings, noise, driver, and what it does next."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from html import escape

from roofwatch.ci.history.recent import noise_from_history
from roofwatch.ci.messages import count_of
from roofwatch.dashboard.charts.runners import ceiling_name, measured_ceilings
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.runner_state import THROTTLED_SHARE, RunnerState, runner_state
from roofwatch.dashboard.wording import (
    device_text,
    duration_text,
    escaped,
    percent,
    rate_text,
    short_date,
    shortened,
)
from roofwatch.model.agenda import StoredJob
from roofwatch.model.library import is_library
from roofwatch.model.stored_results import FleetRun, RecentRuns, RecentSeries

DAYS = 30
_NOISY = 1.5
"""Times the noise of its siblings from which a machine stands out."""
_NS_PER_S = 1e9
_WORN = -0.02
"""Change of ceilings, against their own median or siblings, from which it stands out."""
_JOBS_SHOWN = 3
_LONGEST_REASON = 160
"""Characters; a long case stands before what differs."""
_ACTIVITIES_SHOWN = 5
_DRIVERS_SHOWN = 3
_MACHINE_LETTERS = 6


MachineKey = tuple[str, str | None]
"""Runner class and machine."""
_Rates = dict[str, tuple[str, list[float]]]
"""Resource and measured rates of each ceiling, the newest first, by name."""


@dataclass(frozen=True)
class Machine:
    """The runs of one physical machine in one runner class."""

    runner_class: str
    machine: str | None
    """None if its records do not say."""
    runs: tuple[FleetRun, ...]
    """The newest first."""

    @property
    def key(self) -> MachineKey:
        return self.runner_class, self.machine


@dataclass(frozen=True, kw_only=True)
class FleetFacts:
    """What the cards show besides runs."""

    now: datetime
    """End of the strips."""
    degraded_shares: Mapping[str, float]
    """Throttled or shared measurements by run."""
    noise: Mapping[MachineKey, Mapping[str, float]]
    """By machine and what it is the noise of."""
    jobs: Sequence[StoredJob]


def machines_of(runs: Iterable[FleetRun]) -> list[Machine]:
    """Group runs by runner class and machine, classes by name, the busiest machine first."""
    groups: dict[MachineKey, list[FleetRun]] = defaultdict(list)
    for run in runs:
        groups[run.runner_class, run.machine].append(run)
    machines: list[Machine] = []
    for (runner_class, machine), of_machine in groups.items():
        newest_first = sorted(
            of_machine,
            key=lambda run: run.started_at,
            reverse=True,
        )
        machines.append(
            Machine(
                runner_class=runner_class,
                machine=machine,
                runs=tuple(newest_first),
            )
        )
    return sorted(machines, key=_place_of)


def _place_of(machine: Machine) -> tuple[str, int, str]:
    return machine.runner_class, -len(machine.runs), machine.machine or ""


def state_of(machine: Machine, facts: FleetFacts) -> RunnerState:
    """Return whether a machine reports, and undisturbed, by its newest run."""
    newest = machine.runs[0]
    degraded_share = facts.degraded_shares.get(newest.run_id, 0.0)
    result_times = [run.finished_at for run in machine.runs]
    return runner_state(
        result_times,
        degraded_share,
        datetime.now(UTC),
    )


def card_html(
    view: View,
    machine: Machine,
    siblings: Sequence[Machine],
    facts: FleetFacts,
) -> str:
    """Write the card of a machine; siblings are the other machines of its runner class."""
    device = escaped(device_text(machine.runner_class))
    name = view.anchor(device, "machines", runner=machine.runner_class)
    label = ""
    if machine.machine is not None:
        short_machine = escaped(machine.machine[:_MACHINE_LETTERS])
        label = f" <code>{short_machine}</code>"
    state = state_of(machine, facts)
    lines = {
        "30 days": _strip_html(view, machine, facts),
        "runs": _runs_text(view, machine),
        "ceilings": _ceilings_html(machine, siblings),
        "noise": _noise_html(machine, siblings, facts),
        "driver": _driver_html(view, machine),
        "time": _time_html(machine, facts),
        "next": _agenda_html(machine.runner_class, len(siblings), facts),
    }
    rows = ""
    for title, text in lines.items():
        if text:
            rows += f"<dt>{title}</dt><dd>{text}</dd>"
    explanation = escaped(state.explanation)
    runner_class = escaped(shortened(machine.runner_class))
    return (
        f"<article class=rw-card><h2>{name}{label} "
        f"<span class='rw-mark {state.word}'>{state.symbol} {explanation}</span></h2>"
        f"<p class=rw-soft>{runner_class}</p><dl>{rows}</dl></article>"
    )


def _strip_html(view: View, machine: Machine, facts: FleetFacts) -> str:
    """Draw a cell for each day: measured, throttled or shared, or nothing."""
    by_day: dict[date, list[FleetRun]] = defaultdict(list)
    for run in machine.runs:
        day = run.started_at.astimezone(view.zone).date()
        by_day[day].append(run)
    last_day = facts.now.astimezone(view.zone).date()
    first_day = last_day - timedelta(days=DAYS - 1)
    cells = ""
    for age in range(DAYS):
        day = first_day + timedelta(days=age)
        cells += _day_html(
            day,
            by_day[day],
            facts,
        )
    return (
        f"<span class=rw-strip role=img aria-label='Runs of {DAYS} days'>{cells}</span>"
        f"<span class=rw-strip-dates><span>{first_day:%-d %b}</span>"
        f"<span>{last_day:%-d %b}</span></span>"
    )


def _day_html(day: date, runs: Sequence[FleetRun], facts: FleetFacts) -> str:
    kind = "none"
    words = "no run"
    if runs:
        kind = "ok"
        words = count_of(len(runs), "run")
        # the worst run of a day, which an average would hide
        shares = [facts.degraded_shares.get(run.run_id, 0.0) for run in runs]
        share = max(shares)
        if share > THROTTLED_SHARE:
            kind = "throttled"
            words += f", {share:.0%} throttled or shared"
    return f'<i class={kind} title="{day:%-d %b}: {words}"></i>'


def _runs_text(view: View, machine: Machine) -> str:
    oldest = machine.runs[-1]
    oldest_date = short_date(oldest.started_at, view.zone)
    pair_count = sum(run.is_pair_side for run in machine.runs)
    text = f"{len(machine.runs)} since {oldest_date}"
    if pair_count:
        return f"{text}, {pair_count} of them in pairs"
    return text


def _ceilings_html(machine: Machine, siblings: Sequence[Machine]) -> str:
    """Write the newest ceilings against their own median, and the machine against its siblings."""
    rates = _rates(machine)
    parts: list[str] = []
    for name, (resource, values) in rates.items():
        newest_per_s = values[0]
        # against itself: machines of one kind differ
        change = newest_per_s / statistics.median(values) - 1
        kind = _kind_of(change)
        rate = escaped(rate_text(resource, newest_per_s))
        change_text = percent(change)
        against_itself = f"<span class={kind} title='against its own median'>{change_text}</span>"
        parts.append(f"{escaped(name)} {rate} {against_itself}")
    ratios = _ratios_to(siblings, rates)
    if ratios:
        change = statistics.median(ratios) - 1
        # a machine that was always slower stands out against its siblings only
        kind = _kind_of(change)
        change_text = percent(change)
        count = count_of(len(siblings), "sibling")
        parts.append(f"<span class={kind}>median {change_text} against its {count}</span>")
    return "<br>".join(parts)


def _kind_of(change: float) -> str:
    """Return the class in CSS of a change of ceilings."""
    if change < _WORN:
        return "rw-slower"
    return "rw-soft"


def _ratios_to(siblings: Iterable[Machine], rates: _Rates) -> list[float]:
    """Return the median rate of each ceiling over that of the siblings that measured it too."""
    sibling_medians: dict[str, list[float]] = defaultdict(list)
    for sibling in siblings:
        for name, (_, values) in _rates(sibling).items():
            sibling_medians[name].append(statistics.median(values))
    ratios: list[float] = []
    for name, (_, values) in rates.items():
        if name in sibling_medians:
            usual = statistics.median(sibling_medians[name])
            ratios.append(statistics.median(values) / usual)
    return ratios


def _rates(machine: Machine) -> _Rates:
    """Return the measured ceilings by name, with their resource, the newest first."""
    rates: _Rates = {}
    for run in machine.runs:
        for ceiling in measured_ceilings(run.ceilings):
            name = ceiling_name(ceiling)
            if name not in rates:
                rates[name] = (ceiling.resource, [])
            _, values = rates[name]
            values.append(ceiling.per_s)
    return rates


def _noise_html(
    machine: Machine,
    siblings: Sequence[Machine],
    facts: FleetFacts,
) -> str:
    """Write how much rows differ from run to run on this machine, and on its siblings."""
    parts: list[str] = []
    for title, deviation in facts.noise[machine.key].items():
        text = f"{title} ±{deviation:.1%} from run to run"
        of_siblings: list[float] = []
        for sibling in siblings:
            sibling_deviation = facts.noise[sibling.key].get(title)
            if sibling_deviation is not None:
                of_siblings.append(sibling_deviation)
        if of_siblings:
            usual = statistics.median(of_siblings)
            kind = "rw-soft"
            if deviation > _NOISY * usual:
                kind = "rw-slower"
            text += f", <span class={kind}>siblings ±{usual:.1%}</span>"
        parts.append(text)
    return "<br>".join(parts)


def noise_of(machine: Machine, recent: Iterable[RecentRuns]) -> dict[str, float]:
    """Estimate the noise of a machine from its own runs: of the rows of libraries, which no commit
    changes, and of our code; without those that have too few runs.
    """
    # pairs measure old commits again, so they say nothing about noise from run to run
    shas = {run.commit.sha for run in machine.runs if not run.is_pair_side}
    noise: dict[str, float] = {}
    for runner in recent:
        if runner.runner_class != machine.runner_class:
            continue
        positions: set[int] = set()
        for position, commit in enumerate(runner.commits):
            if commit.sha in shas:
                positions.add(position)
        lines_of: dict[str, list[RecentSeries]] = {"controls": [], "our code": []}
        for line in runner.series:
            title = "our code"
            if is_library(line.key.implementation):
                title = "controls"
            lines_of[title].append(_restricted(line, positions))
        for title, lines in lines_of.items():
            restricted = replace(runner, series=tuple(lines))
            estimates = noise_from_history([restricted])
            for estimate in estimates.values():
                noise[title] = estimate.deviation
    return noise


def _restricted(line: RecentSeries, positions: Set[int]) -> RecentSeries:
    """Keep the values of some runs."""
    kept_positions: list[int] = []
    kept_values: list[float] = []
    for position, value in zip(line.places, line.values, strict=True):
        if position in positions:
            kept_positions.append(position)
            kept_values.append(value)
    return replace(
        line,
        places=tuple(kept_positions),
        values=tuple(kept_values),
    )


def _driver_html(view: View, machine: Machine) -> str:
    """Write the drivers in order, each with the day of its first run."""
    lane: list[str] = []
    previous: FleetRun | None = None
    for run in reversed(machine.runs):
        driver = run.environment.driver_version
        # not every record names its driver
        if driver is None:
            continue
        if previous is None:
            lane.append(escaped(driver))
        elif driver != previous.environment.driver_version:
            lane.append(_new_driver_html(view, driver, previous, run))
        previous = run
    return " → ".join(lane[-_DRIVERS_SHOWN:])


def _new_driver_html(
    view: View,
    driver: str,
    previous: FleetRun,
    run: FleetRun,
) -> str:
    when = escape(short_date(run.started_at, view.zone))
    # what the driver did is what changed between the last commit before it and the first
    compared = view.anchor(
        "what changed",
        "compare",
        base=previous.commit.sha,
        head=run.commit.sha,
        runner=run.runner_class,
    )
    return f"{escaped(driver)} <span class=rw-soft>from {when}</span> {compared}"


def _time_html(machine: Machine, facts: FleetFacts) -> str:
    """Write where its time went: by job of the agenda, else by activity."""
    # a machine without jobs of the agenda was started by hand: its runs say what took the time
    spent_s = _spent_on_jobs(machine, facts) or _spent_on_activities(machine, facts)
    if not spent_s:
        return ""
    # rounded seconds may add up to none
    whole_s = sum(spent_s.values()) or 1
    parts: list[str] = []
    bars: list[str] = []
    for name, seconds in spent_s.most_common(_ACTIVITIES_SHOWN):
        share = seconds / whole_s
        duration = escaped(duration_text(seconds * _NS_PER_S))
        words = escaped(name.replace("_", " "))
        parts.append(f"{words} {duration} <span class=rw-soft>{share:.0%}</span>")
        title = escaped(name)
        bars.append(f'<i style="width:{share:.1%}" title="{title}"></i>')
    stack = "".join(bars)
    legend = " · ".join(parts)
    return f"<span class=rw-stack>{stack}</span>{legend}"


def _spent_on_jobs(machine: Machine, facts: FleetFacts) -> Counter[str]:
    """Return seconds by kind of job; jobs are of a class: any of its machines takes them."""
    spent_s = Counter[str]()
    for job in facts.jobs:
        if job.runner_class != machine.runner_class:
            continue
        if job.spent_s is not None:
            kind = str(job.kind)
            spent_s[kind] += round(job.spent_s)
    return spent_s


def _spent_on_activities(machine: Machine, facts: FleetFacts) -> Counter[str]:
    """Return seconds by activity, over the runs of the strip."""
    spent_s = Counter[str]()
    since = facts.now - timedelta(days=DAYS)
    recent_runs = [run for run in machine.runs if run.started_at >= since]
    for run in recent_runs:
        for activity, spent_ns in run.spent_ns.items():
            spent_s[activity] += round(spent_ns / _NS_PER_S)
    return spent_s


def _agenda_html(
    runner_class: str,
    sibling_count: int,
    facts: FleetFacts,
) -> str:
    # jobs are of a class, and a lease does not name the machine
    running = "◐ now"
    if sibling_count:
        running = f"◐ now on 1 of {sibling_count + 1}"
    of_class = [job for job in facts.jobs if job.runner_class == runner_class]
    planned = [job for job in of_class if job.finished_at is None]
    rows = [f"<li>{_job_html(job, running)}</li>" for job in planned[:_JOBS_SHOWN]]
    more = len(planned) - _JOBS_SHOWN
    if more > 0:
        rows.append(f"<li class=rw-soft>and {more} more</li>")
    if rows:
        return f"<ul class=rw-list>{''.join(rows)}</ul>"
    return ""


def _job_html(job: StoredJob, running: str) -> str:
    mark = "○"
    if job.leased_until is not None:
        mark = running
    origin = ""
    if job.is_requested:
        origin = " asked for"
    head_sha = escaped(job.head_sha[:8])
    duration = escaped(duration_text(job.expected_s * _NS_PER_S))
    reason = escaped(shortened(job.reason, length=_LONGEST_REASON))
    return (
        f"{mark} <b>{job.kind}</b>{origin} <code>{head_sha}</code> {duration}"
        f" <span class=rw-soft>{reason}</span>"
    )
