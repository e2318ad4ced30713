"""What the runs of a history show beside its times: held against a step, it says what may have caused it."""

from __future__ import annotations

from dataclasses import dataclass, field

from roofwatch.ci.causes.counter_evidence import CounterEvidence
from roofwatch.ci.causes.launch_evidence import LaunchEvidence
from roofwatch.ci.causes.runner_evidence import Calibrations


@dataclass(frozen=True)
class Witnesses:
    """Any of them may be empty."""

    counted: CounterEvidence = field(default_factory=CounterEvidence)
    """Hardware counters."""
    launched: LaunchEvidence = field(default_factory=LaunchEvidence)
    """Profiles of calls."""
    calibrations: Calibrations = field(default_factory=Calibrations)
    """Of the runners."""
