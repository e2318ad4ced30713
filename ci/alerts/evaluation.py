"""Evaluate the rules on the projects of a store, update their alerts, and send the messages in the
outbox.

There is one alert for each cause, however many rules report it. A channel gets it once per episode
and cool-down. If a process dies after it claimed a message, it is unknown whether that arrived: it
is sent again with the same key.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial

from codeowners import CodeOwners
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.endings import endings_of
from roofwatch.ci.alerts.kinds import Rule, conditions_at
from roofwatch.ci.alerts.lifecycle import next_steps
from roofwatch.ci.alerts.links import AcknowledgeLinks
from roofwatch.ci.alerts.ownership import Ownership
from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import MetricRule, RegressionRule
from roofwatch.ci.alerts.rules_file import AlertRules
from roofwatch.ci.bisect.pairs import range_of, series_to_bisect
from roofwatch.ci.history.recent import possible_changes
from roofwatch.ci.messages import AlertError
from roofwatch.db.bisections import request_bisection
from roofwatch.db.projects import lock_project
from roofwatch.db.queries.project import find_commit, list_projects, read_filter_options
from roofwatch.db.queries.runners import read_recent_runs, read_runner_history
from roofwatch.db.queries.runs import list_cases_of_run, list_imported_values
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.alerts import (
    claim_next,
    count_recent,
    list_alerts,
    write_outcome,
    write_steps,
)
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.alert import (
    AlertCondition,
    AlertEvent,
    AlertState,
    AlertStep,
    Delivery,
    DeliveryState,
)
from roofwatch.model.triage import TriageState

REPLAY_DAYS = 30
"""How far back `replay` goes."""
MAX_ATTEMPTS = 12
"""About twenty hours: long enough for a channel that is down overnight."""
HOUR = timedelta(hours=1)
_FIRST_WAIT = timedelta(minutes=1)
"""Doubled after each attempt."""
_LONGEST_WAIT = timedelta(hours=6)
_log = logging.getLogger("roofwatch.alerts")


class SendError(AlertError):
    """A message could not be sent; if `is_uncertain`, it may have arrived."""

    def __init__(
        self,
        message: str,
        *,
        is_uncertain: bool,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.is_uncertain = is_uncertain
        self.retry_after = retry_after or timedelta()
        """Shortest time to wait."""


Send = Callable[[Delivery], None]
"""A channel that is ready for use: sends a message, or raises `SendError`."""


@dataclass(frozen=True)
class AlertSetup:
    """The rules of alerts, what messages need, and where they go."""

    rules: AlertRules
    codeowners: CodeOwners | None = None
    """Of the repository whose kernels are measured; None: only the rules name owners."""
    dashboard_url: str | None = None
    """Without it, messages have no links."""
    channels: Mapping[str, Send | str] = field(default_factory=dict)
    """By name; for a channel that cannot be used, the reason."""
    faults: tuple[str, ...] = ()
    """What cannot be used, and why."""
    links: AcknowledgeLinks | None = None
    """Links that acknowledge an alert; None if the rules configure none."""


def raise_alerts(
    engine: Engine,
    setup: AlertSetup,
    now: datetime,
    projects: Sequence[str] | None = None,
) -> list[AlertStep]:
    """Update the alerts of some projects, or of all, and return what changed."""
    if projects is None:
        with Session(engine) as session:
            projects = list_projects(session)
    changed: list[AlertStep] = []
    for project in projects:
        with Session(engine) as session, session.begin():
            # before reading, so an older evaluation cannot overwrite a newer one
            lock_project(session, project)
            state = read_state(session, project, setup)
            conditions: list[AlertCondition] = []
            for rule in setup.rules.of(project):
                conditions += conditions_at(rule, state, now)
            stored = list_alerts(session, project)
            firing = {alert.cause for alert in stored if alert.state is not AlertState.RESOLVED}
            steps = next_steps(
                project,
                stored,
                conditions,
                rules=setup.rules,
                endings=endings_of(
                    causes=firing,
                    state=state,
                    rules=setup.rules.of(project),
                    now=now,
                ),
                now=now,
                sent_counts=count_recent(session, now - HOUR),
            )
            if setup.links is not None:
                steps = [setup.links.add_to(step) for step in steps]
            # alerts, messages and bisections in one transaction: none is lost or sent twice
            write_steps(session, project, steps)
            _request_bisections(
                session,
                state,
                setup.rules,
                steps,
            )
            changed += steps
    return changed


def read_state(
    session: Session,
    project: str,
    setup: AlertSetup,
) -> ProjectState:
    """Read what the rules need to know of a project; results are read on demand, while the session
    is open.
    """
    rules = setup.rules.of(project)
    if not rules:
        return ProjectState(
            project=project,
            ownership=Ownership(
                table=setup.rules.owners,
                codeowners=setup.codeowners,
                source_paths={},
            ),
            dashboard_url=setup.dashboard_url,
        )
    options = read_filter_options(session, project)
    metric_rules = [rule for rule in rules if isinstance(rule, MetricRule)]
    reference_names = {rule.against_commit for rule in metric_rules} - {None}
    triaged_regressions = list_triaged(session, project)
    judged = [triaged.regression for triaged in triaged_regressions]
    return ProjectState(
        project=project,
        regressions=triaged_regressions,
        possible_changes=possible_changes(read_recent_runs(session, project), judged),
        runs=read_runner_history(session, project),
        results=cache(partial(list_cases_of_run, session)),
        imported=cache(partial(list_imported_values, session)),
        # a case without a family is only known from imported values
        cases={case.case_id: case for case in options.cases if case.family},
        commits={name: find_commit(session, project, name) for name in reference_names if name},
        ownership=Ownership(
            table=setup.rules.owners,
            codeowners=setup.codeowners,
            source_paths=options.source_files,
        ),
        dashboard_url=setup.dashboard_url,
    )


def replay(
    rule: Rule,
    state: ProjectState,
    now: datetime,
) -> list[tuple[datetime, str]]:
    """Return what would have fired in the last 30 days, evaluated once a day without cool-down:
    times and titles.
    """
    fired: list[tuple[datetime, str]] = []
    previous_causes: set[str] | None = None
    for days_ago in range(REPLAY_DAYS, -1, -1):
        time = now - timedelta(days=days_ago)
        titles: dict[str, str] = {}
        for condition in conditions_at(rule, _as_of(state, time), time):
            if not condition.is_past:
                titles[condition.cause] = condition.message.title
        # what the first evaluation finds may have begun long before
        if previous_causes is not None:
            new_causes = [cause for cause in titles if cause not in previous_causes]
            fired += [(time, titles[cause]) for cause in new_causes]
        previous_causes = set(titles)
    return fired


def _as_of(state: ProjectState, time: datetime) -> ProjectState:
    """Return the regressions as they were: without later ones, later recoveries and what closed
    them.
    """
    regressions = []
    for triaged in state.regressions:
        regression = triaged.regression
        triage = triaged.triage
        if regression.commit.committed_at > time:
            continue
        recovered_at = regression.recovered_at
        if recovered_at is not None and recovered_at.committed_at > time:
            regression = replace(regression, recovered_at=None)
            if triage.state is TriageState.FIXED:
                triage = replace(triage, state=TriageState.NEW)
        # a snooze of today was none then
        regressions.append(
            replace(
                triaged,
                regression=regression,
                triage=triage,
                is_snoozed=False,
            )
        )
    # what was possible at another time is not stored
    if time >= _newest(state):
        possible = state.possible_changes
    else:
        possible = ()
    return replace(
        state,
        regressions=regressions,
        possible_changes=possible,
    )


def _newest(state: ProjectState) -> datetime:
    times = [run.started_at for runs in state.runs.values() for run in runs]
    return max(times, default=datetime.min.replace(tzinfo=UTC))


def _request_bisections(
    session: Session,
    state: ProjectState,
    rules: AlertRules,
    steps: Sequence[AlertStep],
) -> None:
    """Request a bisection of each regression that a rule with `bisects` reports for the
    first time.
    """
    regression_rules = [rule for rule in rules.rules if isinstance(rule, RegressionRule)]
    bisecting_names = {rule.name for rule in regression_rules if rule.bisects}
    regressions = {
        triaged.triage.regression_id: triaged.regression for triaged in state.regressions
    }
    for step in steps:
        rule_names = bisecting_names.intersection(step.alert.rules)
        events = [delivery.event for delivery in step.deliveries]
        is_new = AlertEvent.FIRED in events
        regression_id = step.alert.regression_id
        if not rule_names or not is_new or regression_id is None:
            continue
        point = series_to_bisect(regressions[regression_id])
        if point is None:
            continue  # only a step of a time can be bisected
        series = read_series(session, state.project, [point.series])
        request_bisection(
            session,
            range_of(state.project, point, series),
            requested_by=f"rule: {min(rule_names)}",
            regression_id=regression_id,
        )


# --- sending


def deliver_waiting(
    engine: Engine,
    channels: Mapping[str, Send | str],
    now: Callable[[], datetime],
) -> list[Delivery]:
    """Send every message that is due; return those that were tried, with the result."""
    done: list[Delivery] = []
    while (claimed := claim_next(engine, now())) is not None:
        channel = channels.get(claimed.channel, "the rules no longer have this channel")
        outcome = _attempt(claimed, channel, now)
        write_outcome(engine, outcome)
        done.append(outcome)
    return done


def _attempt(
    delivery: Delivery,
    channel: Send | str,
    now: Callable[[], datetime],
) -> Delivery:
    """Send a message once, and return it with what came of it and when to try again."""
    try:
        _send(delivery, channel)
    except SendError as error:
        # twice as long each time, but never beyond the longest wait
        failed_before = delivery.attempt_count - 1
        wait: timedelta = min(_FIRST_WAIT * 2.0**failed_before, _LONGEST_WAIT)
        next_attempt_at = now() + max(wait, error.retry_after)
        state = DeliveryState.FAILED
        consequence = "given up"
        # a channel that is gone must not be tried for ever
        if delivery.attempt_count < MAX_ATTEMPTS:
            state = DeliveryState.WAITING
            consequence = f"next attempt at {next_attempt_at:%Y-%m-%d %H:%M:%S} UTC"
        _log.warning(
            "alert message %s through %r: %s; %s",
            delivery.key,
            delivery.channel,
            error,
            consequence,
        )
        return replace(
            delivery,
            state=state,
            next_attempt_at=next_attempt_at,
            # an earlier attempt may have arrived
            is_uncertain=delivery.is_uncertain or error.is_uncertain,
            error=str(error),
        )
    return replace(
        delivery,
        state=DeliveryState.SENT,
        sent_at=now(),
        error=None,
    )


def _send(delivery: Delivery, channel: Send | str) -> None:
    """Send a message, or raise `SendError`; a text says why the channel cannot be used."""
    if delivery.attempt_count > MAX_ATTEMPTS:
        raise SendError("every process that tried to send it died", is_uncertain=True)
    if isinstance(channel, str):
        raise SendError(channel, is_uncertain=False)
    try:
        channel(delivery)
    except SendError:
        raise
    except Exception as error:  # noqa: BLE001  one broken message must not block all others
        # its text may have an address
        raise SendError(f"unexpected {type(error).__name__}", is_uncertain=True) from None
