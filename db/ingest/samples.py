"""A measurement's samples and what was seen while they were taken, packed into bytes and back without losing a bit.

The layout, inside one zstd frame: length of the head in 4 bytes, little-endian; the head, in JSON; the samples of all
blocks as doubles, the first bytes of all of them, then the second bytes, and so on. Times of one kernel differ in their
last bytes alone, so bytes of one place are alike and compress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from roofwatch.collector.record.measurement import Autotuning, MemoryUse
from roofwatch.db.ingest.saying import say

_HEAD_LENGTH_BYTES = 4
_DOUBLE_BYTES = 8


@dataclass(frozen=True)
class SampleSet:
    launches_per_sample: int
    memory: dict[str, Any] | None
    """Fields at their defaults are left out, as in all that follows."""
    autotuning: Sequence[dict[str, Any]]
    started_at: Sequence[str]
    """Of each block, in UTC."""
    lengths: Sequence[int]
    """Samples of each block."""
    facts: Sequence[dict[str, Any]]
    """What else each block says."""
    samples_ns: NDArray[np.float64]
    """One block after the other."""

    def blocks_ns(self) -> tuple[tuple[float, ...], ...]:
        samples = self.samples_ns.tolist()
        bounds = pairwise(accumulate(self.lengths, initial=0))
        return tuple(tuple(samples[begin:end]) for begin, end in bounds)

    def blocks(self) -> list[dict[str, Any]]:
        """As a record has them."""
        return [
            {"started_at": started_at, "samples_ns": samples_ns, **facts}
            for started_at, samples_ns, facts in zip(self.started_at, self.blocks_ns(), self.facts, strict=True)
        ]


def make_head(
    *,
    launches_per_sample: int,
    memory: MemoryUse | dict[str, Any] | None,
    autotuning: Sequence[Autotuning] | Sequence[dict[str, Any]],
    started_at: Sequence[datetime] | Sequence[str],
    lengths: Sequence[int],
    facts: Sequence[dict[str, Any]],
) -> bytes:
    """What a `SampleSet` has but its samples, with its length; parts of a record may be as they are."""
    head = orjson.dumps(
        {
            "launches_per_sample": launches_per_sample,
            "memory": memory,
            "autotuning": autotuning,
            "started_at": started_at,
            "lengths": lengths,
            "facts": facts,
        },
        default=say,
        option=orjson.OPT_UTC_Z,
    )
    return len(head).to_bytes(_HEAD_LENGTH_BYTES, "little") + head


def pack(heads: Sequence[bytes], samples_ns: NDArray[np.float64], counts: Sequence[int]) -> list[bytes]:
    """Pack sample sets, many at once; while they are compressed, other threads run.

    Args:
        heads: Of each set.
        samples_ns: Of one set after the other, shape [sum(counts)].
        counts: Samples of each set.
    """
    if not heads:
        return []
    pairs = zip(heads, _shuffled(samples_ns, counts), strict=True)
    whole: list[bytes | bytearray | memoryview[int]] = [head + shuffled for head, shuffled in pairs]
    compressed = zstandard.ZstdCompressor(level=1, write_content_size=True).multi_compress_to_buffer(whole)
    return [compressed[place].tobytes() for place in range(len(compressed))]


def pack_one(sample_set: SampleSet) -> bytes:
    """Pack a sample set alone."""
    samples_ns = sample_set.samples_ns
    head = make_head(
        launches_per_sample=sample_set.launches_per_sample,
        memory=sample_set.memory,
        autotuning=sample_set.autotuning,
        started_at=sample_set.started_at,
        lengths=sample_set.lengths,
        facts=sample_set.facts,
    )
    return pack([head], samples_ns, [len(samples_ns)])[0]


def _shuffled(samples_ns: NDArray[np.float64], counts: Sequence[int]) -> Iterator[bytes]:
    """The bytes of each set by their place in the double; sets of one size at once."""
    doubles = np.ascontiguousarray(samples_ns, dtype="<f8").view(np.uint8)
    begin = 0
    for count, alike in groupby(counts):
        set_count, size = len(list(alike)), count * _DOUBLE_BYTES
        end = begin + set_count * size
        shuffled = doubles[begin:end].reshape(set_count, count, _DOUBLE_BYTES).transpose(0, 2, 1).tobytes()
        for place in range(set_count):
            yield shuffled[place * size : (place + 1) * size]
        begin = end


def unpack(content: bytes) -> SampleSet:
    """The sample set that was packed."""
    whole = zstandard.ZstdDecompressor().decompress(content)
    begin = _HEAD_LENGTH_BYTES + int.from_bytes(whole[:_HEAD_LENGTH_BYTES], "little")
    shuffled = np.frombuffer(whole, dtype=np.uint8, offset=begin).reshape(_DOUBLE_BYTES, -1)
    samples = np.ascontiguousarray(shuffled.T).view("<f8").reshape(-1)
    return SampleSet(**orjson.loads(whole[_HEAD_LENGTH_BYTES:begin]), samples_ns=samples)
