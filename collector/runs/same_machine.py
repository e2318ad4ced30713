"""Whether a run goes on where it was started: its times are of one machine."""

from roofwatch.collector.runs.journal import changes
from roofwatch.model.errors import JournalError
from roofwatch.model.machine import Environment

_PATCH_LEVELS = {"os", "driver_version"}
"""Differences that do not keep a run from being resumed; the class has the driver's major."""
_HOST = {"cpu_name", "core_count"}
"""What else may differ beside a GPU, which does the timed work."""


def require_same_machine(first: Environment, now: Environment, *, is_on_cpu: bool) -> None:
    """Refuse to resume a run on another machine than that of its first part.

    Raises:
        JournalError: another machine; the message has what differs.
    """
    # Machines of one runner class differ in patch levels.
    ignored = _PATCH_LEVELS
    if not is_on_cpu:
        ignored = _PATCH_LEVELS | _HOST
    first_machine = first.model_dump(mode="json", exclude=ignored)
    this_machine = now.model_dump(mode="json", exclude=ignored)
    changed = ", ".join(changes(first_machine, this_machine))
    if first.runner_class != now.runner_class and not changed:
        changed = f"{first.runner_class} before, {now.runner_class} now"
    if changed:
        raise JournalError(
            f"the run was started on another machine: {changed}; resume there, or delete "
            f"its journal"
        )
