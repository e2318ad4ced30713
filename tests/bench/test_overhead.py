"""What `bench/overhead.py` makes of a record: shares that neither noise nor a cap can flatter."""

import pytest

from bench.overhead import block_plan, one_case_each, shares, with_shortest_blocks
from roofwatch.collector.record.measurement import Block
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.timing.method import EFFORTS, Preset
from tests.builders import NOON, make_measurement, make_record

QUICK = EFFORTS[Preset.QUICK].sampling
SECOND_NS = 1_000_000_000


def record_of(*samples_ns: tuple[float, ...], launches_per_sample: int = 1) -> RunRecord:
    """One that spent a second each on start, check, warm-up and overhead, and timed these blocks."""
    blocks = tuple(Block(started_at=NOON, samples_ns=samples) for samples in samples_ns)
    timed_ns = round(sum(map(sum, samples_ns)) * launches_per_sample)
    other = dict.fromkeys(("start", "check", "warm_up", "overhead"), SECOND_NS)
    measurement = make_measurement(blocks=blocks, launches_per_sample=launches_per_sample)
    return make_record(measurements=(measurement,)).model_copy(update={"spent_ns": {**other, "timing": timed_ns}})


def test_a_block_that_noise_drew_out_counts_as_long_as_the_preset_s_patience() -> None:
    drawn_out, early = (1e7,) * 1_000, (1e7,) * 60
    assert with_shortest_blocks(record_of(drawn_out, early), QUICK)["timing"] == 2 * QUICK.patience_ms * 1e6
    assert with_shortest_blocks(record_of((1e6,) * 500, launches_per_sample=20), QUICK)["timing"] == (
        QUICK.min_samples * 20 * 1e6
    ), "thirty samples of 20 ms take longer than the patience"


def test_a_block_that_ended_sooner_counts_as_it_was_and_nothing_else_changes() -> None:
    record = record_of((SECOND_NS / 5,) * 2)
    assert with_shortest_blocks(record, QUICK) == record.spent_ns
    assert shares(record.spent_ns) == " 58.3% of the blocks,  41.2% of the run after start-up"


def test_a_block_is_ended_sooner_than_by_its_preset_but_not_before_that_might_end_it() -> None:
    assert block_plan(Preset.QUICK, None) == QUICK
    capped = block_plan(Preset.QUICK, 1.0)
    assert (capped.budget_ms, capped.patience_ms, capped.relative_width) == (1_000, 500, QUICK.relative_width)
    for seconds in (0.4, 16):
        with pytest.raises(ValueError, match=r"--preset quick takes 0\.5 to 15 s"):
            block_plan(Preset.QUICK, seconds)


def test_of_each_kernel_one_small_case_is_taken() -> None:
    cases = one_case_each(["softmax", "rms_*"])
    assert [case.split("/")[0] for case in cases] == ["rms_norm", "softmax"]
