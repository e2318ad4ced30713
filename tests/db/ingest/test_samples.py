"""Packing of samples is lossless."""

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.db.ingest.samples import SampleSet, pack, unpack

positive = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)


def make_sample_set(*blocks: list[float]) -> SampleSet:
    return SampleSet(
        launches_per_sample=3,
        memory={"allocation_count": 2},
        autotuning=[{"function": "body", "chosen": {"b": 1, "a": 1e20}}],
        started_at=["2026-03-01T12:00:00.123456+00:00"] * len(blocks),
        lengths=[len(block) for block in blocks],
        facts=[{"kernel_count": number} for number in range(len(blocks))],
        samples_ns=np.array([sample for block in blocks for sample in block], dtype=np.float64),
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(positive, min_size=1, max_size=5), max_size=4))
def test_unpacked_samples_equal_the_packed(blocks: list[list[float]]) -> None:
    before = make_sample_set(*blocks)

    after = unpack(pack(before))

    assert [[struct.pack("<d", sample) for sample in block] for block in after.blocks_ns()] == [
        [struct.pack("<d", sample) for sample in block] for block in blocks
    ]
    assert (after.launches_per_sample, after.memory, after.autotuning) == (3, before.memory, before.autotuning)
    assert list(after.autotuning[0]["chosen"]) == ["b", "a"]
    assert [block["kernel_count"] for block in after.blocks()] == list(range(len(blocks)))
