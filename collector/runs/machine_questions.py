"""What a run asks its workers about the machine, while nothing else runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.collector.runs.run_plan import Activity, SpentTime
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.errors import TimerError
from roofwatch.model.machine import Ceiling, Environment
from roofwatch.model.measurement import Timer
from roofwatch.model.timing_method import ChosenMethod
from roofwatch.model.worker_protocol import (
    ChooseTiming,
    DescribeEnvironment,
    Job,
    MeasureCeilings,
    Reply,
    machine_error,
)

MACHINE_TIMEOUT_S = 120.0
"""Time limit of each question, and of describing the sources of kernels."""


@dataclass(frozen=True)
class MachineQuestions:
    """Every question raises a `CollectorError` if the machine cannot answer it."""

    workers: WorkerPool
    spent: SpentTime
    device: str

    def describe(self) -> tuple[Environment, str | None]:
        """The environment, and the UUID of the device."""
        reply = self._ask(
            job=DescribeEnvironment(),
            activity=Activity.START,
            problem="the machine cannot be described",
        )
        assert reply.environment is not None
        return reply.environment, reply.device_uuid

    def choose_timing(self, requested: ChooseTiming) -> ChosenMethod:
        """The timer and cache state of the whole run.

        Raises:
            TimerError: the requested timer or cache state is not available.
        """
        reply = self._ask(
            job=requested,
            activity=Activity.START,
            problem="no timer can be chosen",
        )
        assert reply.chosen is not None
        return reply.chosen

    def measure_ceilings(self, dtypes: Sequence[str], timer: Timer) -> tuple[Ceiling, ...]:
        """Highest rates of the device, in bytes or operations per second."""
        reply = self._ask(
            job=MeasureCeilings(dtypes=tuple(dtypes), timer=timer),
            activity=Activity.CEILINGS,
            problem="the ceilings cannot be measured",
        )
        assert reply.ceilings is not None
        return reply.ceilings

    def _ask(self, job: Job, activity: Activity, problem: str) -> Reply:
        """Ask one question, and count the time as the activity's."""
        with self.spent.on(activity):
            reply = self.workers.request(job, timeout_s=MACHINE_TIMEOUT_S)
        if reply.error is not None:
            raise TimerError(reply.error)
        if reply.failure is not None:
            raise machine_error(problem, reply.failure, self.device)
        return reply
