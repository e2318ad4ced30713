"""A measurement's samples and what was seen while they were taken, packed into bytes and back without losing a bit.

The layout, inside one zstd frame: length of the head in 4 bytes, little-endian; the head, in JSON; the samples of all
blocks as doubles, the first bytes of all of them, then the second bytes, and so on. Times of one kernel differ in their
last bytes alone, so bytes of one place are alike and compress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

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


class SamplePacker:
    """Packs many sample sets."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=1, write_content_size=True)

    def pack(self, sample_set: SampleSet) -> bytes:
        head = orjson.dumps(
            {
                "launches_per_sample": sample_set.launches_per_sample,
                "memory": sample_set.memory,
                "autotuning": sample_set.autotuning,
                "started_at": sample_set.started_at,
                "lengths": sample_set.lengths,
                "facts": sample_set.facts,
            }
        )
        doubles = np.ascontiguousarray(sample_set.samples_ns, dtype="<f8")
        shuffled = doubles.view(np.uint8).reshape(-1, _DOUBLE_BYTES).T.tobytes()
        return self._compressor.compress(len(head).to_bytes(_HEAD_LENGTH_BYTES, "little") + head + shuffled)


def unpack(content: bytes) -> SampleSet:
    """The sample set that was packed."""
    whole = zstandard.ZstdDecompressor().decompress(content)
    begin = _HEAD_LENGTH_BYTES + int.from_bytes(whole[:_HEAD_LENGTH_BYTES], "little")
    shuffled = np.frombuffer(whole, dtype=np.uint8, offset=begin).reshape(_DOUBLE_BYTES, -1)
    samples = np.ascontiguousarray(shuffled.T).view("<f8").reshape(-1)
    return SampleSet(**orjson.loads(whole[_HEAD_LENGTH_BYTES:begin]), samples_ns=samples)
