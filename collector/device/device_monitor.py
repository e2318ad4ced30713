"""What is seen of the device beside the measuring of one suite, where somebody sees to it; else nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from roofwatch.collector.device.device_session import DeviceWatch
from roofwatch.collector.device.join import Window
from roofwatch.collector.record.device_state import DeviceState, Telemetry
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.workers.protocol import MeasuredCeiling, TimedBlock


@dataclass
class DeviceBeside:
    """Asks a watch, which several suites of one run may share.

    Args:
        watch: Sees to the device; nobody does if it is None.
    """

    watch: DeviceWatch | None
    at_ceilings: tuple[DeviceState, ...] = ()
    """How it was while the ceilings were measured."""

    def begin(self, environment: Environment, device_uuid: str | None) -> Environment:
        """The environment with what is known of the device from here on.

        Raises:
            CollectorError: the device is not fit to be measured on, or its clock cannot be held.
        """
        return environment if self.watch is None else self.watch.begin(environment, device_uuid)

    def note_ceilings(self, measured: Iterable[MeasuredCeiling]) -> None:
        """Look up how the device was while each was measured."""
        self.at_ceilings = tuple(self._seen_at(measured))

    def _seen_at(self, measured: Iterable[MeasuredCeiling]) -> Iterator[DeviceState]:
        for each in measured:
            if self.watch is not None and each.ceiling.source == "measured":
                state = self.watch.state(Window(each.began_ns, each.ended_ns))
                if state is not None:
                    yield state

    def watched(self, taken: TimedBlock) -> TimedBlock:
        """The block with what was seen of the device while its samples were taken."""
        if self.watch is None:
            return taken
        window = Window(taken.began_ns, taken.ended_ns)
        launch_count = len(taken.block.samples_ns) * taken.launches_per_sample
        state = self.watch.state(window, launch_count=launch_count)
        return taken.model_copy(update={"block": taken.block.model_copy(update={"device_state": state})})

    @property
    def is_too_hot(self) -> bool:
        return self.watch is not None and self.watch.is_too_hot

    def cool_down(self, on_wait: Callable[[str], None]) -> None:
        """Wait until heat holds it back no longer; `on_wait` is told."""
        if self.watch is not None:
            self.watch.cool_down(on_wait)

    def take_new(self) -> Telemetry | None:
        """What was seen since this was asked last."""
        return None if self.watch is None else self.watch.take_new()

    @property
    def telemetry(self) -> Telemetry | None:
        """All that was seen."""
        seen = None if self.watch is None else self.watch.telemetry
        return None if seen is None else seen.model_copy(update={"at_ceilings": self.at_ceilings})
