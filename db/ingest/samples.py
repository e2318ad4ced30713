"""A measurement's samples and what was seen while they were taken, packed into bytes without losing a bit.

The layout, inside one zstd frame: length of the head in 4 bytes, little-endian; the head, in JSON; the samples of all
blocks as doubles, the first bytes of all of them, then the second bytes, and so on. Times of one kernel differ only in
their last bytes, so equal bytes lie together and compress.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
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
    started_at: Sequence[datetime] | Sequence[str]
    """Start of each block, in UTC."""
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


def pack(sample_set: SampleSet) -> bytes:
    fields = {name: value for name, value in vars(sample_set).items() if name != "samples_ns"}
    head = orjson.dumps(fields, option=orjson.OPT_UTC_Z)
    doubles = np.ascontiguousarray(sample_set.samples_ns, dtype="<f8").view(np.uint8)
    shuffled = doubles.reshape(-1, _DOUBLE_BYTES).T.tobytes()
    whole = len(head).to_bytes(_HEAD_LENGTH_BYTES, "little") + head + shuffled
    return zstandard.ZstdCompressor(level=1).compress(whole)


def unpack(content: bytes) -> SampleSet:
    whole = zstandard.ZstdDecompressor().decompress(content)
    begin = _HEAD_LENGTH_BYTES + int.from_bytes(whole[:_HEAD_LENGTH_BYTES], "little")
    shuffled = np.frombuffer(whole, dtype=np.uint8, offset=begin).reshape(_DOUBLE_BYTES, -1)
    samples = np.ascontiguousarray(shuffled.T).view("<f8").reshape(-1)
    return SampleSet(**orjson.loads(whole[_HEAD_LENGTH_BYTES:begin]), samples_ns=samples)
