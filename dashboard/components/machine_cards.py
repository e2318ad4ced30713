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
"""Change of a ceiling against its own median from which it stands out."""
_JOBS_SHOWN = 3
_ACTIVITIES_SHOWN = 5


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
    groups: dict[tuple[str, str | None], list[FleetRun]] = defaultdict(list)
    for run in runs:
        groups[run.runner_class, run.machine].append(run)
    machines: list[Machine] = []
    for (runner_class, machine), of_machine in groups.items():
        ordered = sorted(of_machine, key=lambda run: run.started_at, reverse=True)
        machines.append(Machine(runner_class, machine, tuple(ordered)))
    return sorted(machines, key=_place_of)


def _place_of(machine: Machine) -> tuple[str, int, str]:
    return machine.runner_class, -len(machine.runs), machine.machine or ""


def state_of(machine: Machine, facts: FleetFacts) -> RunnerState:
    """Return whether a machine reports, and undisturbed, by its newest run."""
    degraded_share = facts.degraded_shares.get(machine.runs[0].run_id, 0.0)
    result_times = [run.finished_at for run in machine.runs]
    return runner_state(result_times, degraded_share, datetime.now(UTC))


def card_html(
    view: View,
    machine: Machine,
    siblings: Sequence[Machine],
    facts: FleetFacts,
) -> str:
    """Write the card of a machine; siblings are the other machines of its runner class."""
    newest = machine.runs[0]
    name = view.anchor(
        escaped(device_text(machine.runner_class)), "machines", runner=machine.runner_class
    )
    label = ""
    if machine.machine is not None:
        label = f" <code>{escaped(machine.machine[:6])}</code>"
    state = state_of(machine, facts)
    lines = [
        ("30 days", _strip_html(view, machine, facts)),
        ("runs", _runs_text(view, machine)),
        ("ceilings", _ceilings_html(machine, siblings)),
        ("noise", _noise_html(machine, siblings, facts)),
        ("driver", _driver_html(view, machine)),
        ("time", _time_html(machine, facts)),
        ("next", _agenda_html(machine.runner_class, facts)),
    ]
    rows = "".join(f"<dt>{title}</dt><dd>{text}</dd>" for title, text in lines if text)
    return (
        f"<article class=rw-card><h2>{name}{label} "
        f"<span class='rw-mark {state.word}'>{state.symbol} {escaped(state.explanation)}</span>"
        f"</h2>"
        f"<p class=rw-soft>{escaped(shortened(newest.runner_class))}</p><dl>{rows}</dl></article>"
    )


def _strip_html(view: View, machine: Machine, facts: FleetFacts) -> str:
    """Draw a cell for each day: measured, throttled or shared, or nothing."""
    by_day: dict[date, list[FleetRun]] = defaultdict(list)
    for run in machine.runs:
        by_day[run.started_at.astimezone(view.zone).date()].append(run)
    last_day = facts.now.astimezone(view.zone).date()
    days = [last_day - timedelta(days=age) for age in reversed(range(DAYS))]
    cells = "".join(_day_html(day, by_day[day], facts) for day in days)
    return (
        f"<span class=rw-strip role=img aria-label='Runs of {DAYS} days'>{cells}</span>"
        f"<span class=rw-strip-dates><span>{days[0]:%-d %b}</span>"
        f"<span>{last_day:%-d %b}</span></span>"
    )


def _day_html(day: date, runs: Sequence[FleetRun], facts: FleetFacts) -> str:
    kind, words = "none", "no run"
    if runs:
        kind, words = "ok", count_of(len(runs), "run")
        # the worst run of a day, which an average would hide
        share = max(facts.degraded_shares.get(run.run_id, 0.0) for run in runs)
        if share > THROTTLED_SHARE:
            kind = "throttled"
            words += f", {share:.0%} throttled or shared"
    return f'<i class={kind} title="{day:%-d %b}: {words}"></i>'


def _runs_text(view: View, machine: Machine) -> str:
    oldest = short_date(machine.runs[-1].started_at, view.zone)
    pair_count = sum(run.is_pair_side for run in machine.runs)
    text = f"{len(machine.runs)} since {oldest}"
    if pair_count:
        return f"{text}, {pair_count} of them in pairs"
    return text


def _ceilings_html(machine: Machine, siblings: Sequence[Machine]) -> str:
    """Write the newest ceilings against their own median, and the machine against its siblings."""
    rates = _rates(machine)
    parts: list[str] = []
    for name, (resource, values) in rates.items():
        # against itself: machines of one kind differ
        change = values[0] / statistics.median(values) - 1
        kind = "rw-soft"
        if change < _WORN:
            kind = "rw-slower"
        rate = escaped(rate_text(resource, values[0]))
        against_itself = (
            f"<span class={kind} title='against its own median'>{percent(change)}</span>"
        )
        parts.append(f"{escaped(name)} {rate} {against_itself}")
    ratios = _ratios_to(siblings, rates)
    if ratios:
        change = statistics.median(ratios) - 1
        count = count_of(len(siblings), "sibling")
        parts.append(f"<span class=rw-soft>all {percent(change)} against its {count}</span>")
    return "<br>".join(parts)


def _ratios_to(siblings: Iterable[Machine], rates: _Rates) -> list[float]:
    """Return the median rate of each ceiling over that of the siblings that measured it too."""
    sibling_rates = list(map(_rates, siblings))
    ratios: list[float] = []
    for name, (_, values) in rates.items():
        medians = [statistics.median(rates[name][1]) for rates in sibling_rates if name in rates]
        if medians:
            ratios.append(statistics.median(values) / statistics.median(medians))
    return ratios


def _rates(machine: Machine) -> _Rates:
    """Return the measured ceilings by name, with their resource, the newest first."""
    rates: _Rates = {}
    for run in machine.runs:
        for ceiling in measured_ceilings(run.ceilings):
            _, values = rates.setdefault(ceiling_name(ceiling), (ceiling.resource, []))
            values.append(ceiling.per_s)
    return rates


def _noise_html(machine: Machine, siblings: Sequence[Machine], facts: FleetFacts) -> str:
    """Write how much rows differ from run to run on this machine, and on its siblings."""
    parts: list[str] = []
    for title, deviation in facts.noise[machine.key].items():
        text = f"{title} ±{deviation:.1%} from run to run"
        all_noise = [facts.noise[sibling.key].get(title) for sibling in siblings]
        of_siblings = [value for value in all_noise if value is not None]
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
    shas = {run.commit.sha for run in machine.runs if not run.is_pair_side}
    noise: dict[str, float] = {}
    for runner in recent:
        if runner.runner_class != machine.runner_class:
            continue
        # pairs measure old commits again, so they say nothing about noise from run to run
        positions = {
            position for position, commit in enumerate(runner.commits) if commit.sha in shas
        }
        for title, of_libraries in (("controls", True), ("our code", False)):
            lines = [
                _restricted(line, positions)
                for line in runner.series
                if is_library(line.key.implementation) is of_libraries
            ]
            estimates = noise_from_history([replace(runner, series=tuple(lines))])
            for estimate in estimates.values():
                noise[title] = estimate.deviation
    return noise


def _restricted(line: RecentSeries, positions: Set[int]) -> RecentSeries:
    """Keep the values of some runs."""
    kept_values = [
        (position, value)
        for position, value in zip(line.places, line.values, strict=True)
        if position in positions
    ]
    return replace(
        line,
        places=tuple(position for position, _ in kept_values),
        values=tuple(value for _, value in kept_values),
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
    return " → ".join(lane[-3:])


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
        parts.append(
            f"{escaped(name.replace('_', ' '))} {duration} <span class=rw-soft>{share:.0%}</span>"
        )
        bars.append(f'<i style="width:{share:.1%}" title="{escaped(name)}"></i>')
    return f"<span class=rw-stack>{''.join(bars)}</span>{' · '.join(parts)}"


def _spent_on_jobs(machine: Machine, facts: FleetFacts) -> Counter[str]:
    """Return seconds by kind of job; jobs are of a class: any of its machines takes them."""
    spent_s = Counter[str]()
    for job in facts.jobs:
        if job.runner_class == machine.runner_class and job.spent_s is not None:
            spent_s[str(job.kind)] += round(job.spent_s)
    return spent_s


def _spent_on_activities(machine: Machine, facts: FleetFacts) -> Counter[str]:
    """Return seconds by activity, over the runs of the strip."""
    spent_s = Counter[str]()
    since = facts.now - timedelta(days=DAYS)
    for run in machine.runs:
        if run.started_at >= since:
            for activity, spent_ns in run.spent_ns.items():
                spent_s[activity] += round(spent_ns / _NS_PER_S)
    return spent_s


def _agenda_html(runner_class: str, facts: FleetFacts) -> str:
    planned = [
        job for job in facts.jobs if job.runner_class == runner_class and job.finished_at is None
    ]
    rows = [f"<li>{_job_html(job)}</li>" for job in planned[:_JOBS_SHOWN]]
    more = len(planned) - _JOBS_SHOWN
    if more > 0:
        rows.append(f"<li class=rw-soft>and {more} more</li>")
    if rows:
        return f"<ul class=rw-list>{''.join(rows)}</ul>"
    return ""


def _job_html(job: StoredJob) -> str:
    mark, origin = "○", ""
    if job.leased_until is not None:
        mark = "◐ now"
    if job.is_requested:
        origin = " asked for"
    duration = escaped(duration_text(job.expected_s * _NS_PER_S))
    reason = escaped(shortened(job.reason, length=70))
    return (
        f"{mark} <b>{job.kind}</b>{origin} <code>{escaped(job.head_sha[:8])}</code> {duration}"
        f" <span class=rw-soft>{reason}</span>"
    )
