"""What a rule of alerts covers, and why it can report nothing. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from roofwatch.ci.alerts.kinds import Rule
from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import KernelRule, MetricRule
from roofwatch.ci.messages import count_of
from roofwatch.model.case_key import kernel_of

_MAX_NAMES = 10

Coverage = dict[str, dict[str, bool]]
"""Names of kernels and runners, and whether a rule covers each."""


def coverage(rule: Rule, state: ProjectState) -> Coverage:
    """Determine which runners and kernels a rule covers; a kernel needs a case that has the rule's
    metric.
    """
    runners: dict[str, bool] = {}
    for device, classes in state.devices.items():
        runners[device] = any(map(rule.covers_runner, classes))
    # a rule about runners covers no kernel
    if not isinstance(rule, KernelRule):
        return {"runner": runners}
    kernels: dict[str, bool] = defaultdict(bool)
    for case_id, case in state.cases.items():
        has_metric = True
        if isinstance(rule, MetricRule):
            # a rate needs an amount of work; other metrics have no entry
            has_metric = bool(case.costs.get(rule.metric, 1))
        is_covered = has_metric and state.covers(rule, case_id)
        # one covered case is enough
        kernels[kernel_of(case_id)] |= is_covered
    return {"kernel": dict(kernels), "runner": runners}


def is_idle(covered: Coverage) -> bool:
    """Return whether a rule can report nothing, although there are results."""
    # without any name, nothing was measured yet
    measured = [names for names in covered.values() if names]
    return any(not any(names.values()) for names in measured)


def why_never_firing(rule: Rule, states: Sequence[ProjectState]) -> list[str]:
    """Return why a rule that matches something can report nothing."""
    if not isinstance(rule, MetricRule) or rule.against_commit is None:
        return []
    name = rule.against_commit
    if any(state.commits.get(name) is not None for state in states):
        return []
    return [f"rule {rule.name!r} can never fire: against = {name!r} was never measured"]


def coverage_text(covered: Coverage) -> str:
    """Write how many kernels and runners a rule covers, with all names if it is none."""
    parts = []
    for kind, is_covered in covered.items():
        covered_count = sum(is_covered.values())
        part = f"{covered_count} of {count_of(len(is_covered), kind)}"
        # the names show what the rule should have matched
        if not covered_count:
            names = sorted(is_covered)[:_MAX_NAMES]
            part += f": {', '.join(names) or 'no results yet'}"
        parts.append(part)
    return f"matches {', '.join(parts)}"
