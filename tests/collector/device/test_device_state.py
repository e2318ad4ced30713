import pytest
from pydantic import ValidationError

from roofwatch.collector.record.machine import DeviceState, Telemetry
from roofwatch.collector.record.measurement import measured_values
from tests.builders import NOON, make_blocks, make_case, make_measurement


def joules_of(*energies_j: float | None) -> float | None:
    blocks = tuple(
        block.model_copy(update={"device_state": DeviceState(reading_count=2, energy_per_launch_j=energy_j)})
        for block, energy_j in zip(make_blocks([1_000.0] * len(energies_j)), energies_j, strict=True)
    )
    return measured_values(make_measurement(blocks=blocks), make_case()).get("joules_per_launch")


def test_the_energy_of_a_launch_is_the_median_over_the_blocks_that_know_it() -> None:
    assert joules_of(0.01, 0.03, 0.02) == 0.02
    assert joules_of(0.01, None, 0.03) == pytest.approx(0.02)
    assert joules_of(None, None) is None


def test_blocks_that_nobody_watched_have_no_energy() -> None:
    assert "joules_per_launch" not in measured_values(make_measurement(), make_case())


def test_columns_of_telemetry_are_of_one_length_or_empty() -> None:
    Telemetry(status="ok", started_at=NOON, offset_ms=(0, 50), power_w=(100, None))

    with pytest.raises(ValidationError, match="2 readings with 1 of power_w"):
        Telemetry(status="ok", started_at=NOON, offset_ms=(0, 50), power_w=(100,))
