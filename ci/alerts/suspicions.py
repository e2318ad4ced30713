"""Possible changes that nothing decided in time: no runner came to measure a pair."""

from datetime import datetime, timedelta

from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import RegressionRule
from roofwatch.ci.history.recent import KernelSuspicion
from roofwatch.model.alert import AlertCondition, Fact, Message


def suspicion_conditions(
    rule: RegressionRule,
    state: ProjectState,
    now: datetime,
) -> list[AlertCondition]:
    """Report possible slowdowns that are undecided for longer than the rule allows.

    Values of other tools are not reported: no pair can decide about them.
    """
    conditions: list[AlertCondition] = []
    for change in state.possible_changes:
        seen_at = _first_seen(change, state)
        if not change.is_worse or change.is_imported or seen_at is None:
            continue
        if abs(change.relative_change) < rule.min_relative_change:
            continue
        is_covered = rule.covers_runner(change.runner_class) and _covers_kernel(
            rule,
            state,
            change.kernel,
        )
        undecided_for = now - seen_at
        # until then, a pair may still decide
        if not is_covered or undecided_for < timedelta(days=rule.unconfirmed_after_days):
            continue
        conditions.append(
            AlertCondition(
                rule=rule.name,
                # the newest commit would make a new alert of each night
                cause=f"unconfirmed\n{change.runner_class}\n{change.kernel}\n{change.base.sha}",
                severity=rule.severity,
                message=_message(change, state, seen_at),
                event=f"unconfirmed {change.base.sha}",
                is_past=seen_at < now - timedelta(days=rule.within_days),
            )
        )
    return conditions


def _first_seen(change: KernelSuspicion, state: ProjectState) -> datetime | None:
    """When the first run after the old level was measured."""
    times = [
        run.started_at
        for run in state.runs.get(change.runner_class, ())
        if change.base < run.commit <= change.head
    ]
    return min(times, default=None)


def _covers_kernel(
    rule: RegressionRule,
    state: ProjectState,
    kernel: str,
) -> bool:
    """Whether a rule is about any case of a kernel."""
    cases = [case for case in state.cases.values() if case.kernel == kernel]
    if not cases:
        return rule.covers_case(kernel, "", ())
    return any(rule.covers_case(kernel, case.family, case.tags) for case in cases)


def _message(
    change: KernelSuspicion,
    state: ProjectState,
    seen_at: datetime,
) -> Message:
    """What a channel is sent: since when, how sure, and how to decide it."""
    device = state.device_of(change.runner_class)
    size = f"{change.relative_change:+.0%}".replace("%", " %")
    return Message(
        title=f"unconfirmed: {change.kernel} {size} on {device}, not measured as a pair yet",
        facts=(
            Fact("Since", f"{seen_at:%Y-%m-%d %H:%M} UTC, after {change.base.short_sha}"),
            Fact("Claim", change.claim),
            Fact("Decide it", f"roofwatch watch, or roofwatch ab --base {change.base.short_sha}"),
        ),
        owners=state.ownership.owners_of([change.kernel]),
        links=state.link("Ledger", ""),
        kernels=(change.kernel,),
        devices=(device,),
        base_sha=change.base.sha,
        head_sha=change.head.sha,
    )
