"""Bodies are unpacked as gzip itself does it, but for what costs more than what is in it."""

from __future__ import annotations

import gzip
import zlib

import pytest

from roofwatch.api.limits import Limits, unpack
from roofwatch.api.problems import ProblemError

DOCUMENT = b'{"some": "record"}' * 200_000
EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"
"""Of deflate: it says that nothing follows, and that it is not the last."""


def _stored(data: bytes) -> bytes:
    """A gzip file that packs nothing."""
    return gzip.compress(data, 0)


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(DOCUMENT),
        _stored(DOCUMENT),
        b"".join(gzip.compress(DOCUMENT[begin : begin + 2**16]) for begin in range(0, len(DOCUMENT), 2**16)),
        gzip.compress(b"") * 1_000 + gzip.compress(DOCUMENT),
        gzip.compress(DOCUMENT) + gzip.compress(b""),
    ],
    ids=["one", "stored", "in members", "after nothing", "before nothing"],
)
def test_what_gzip_unpacks_is_unpacked(body: bytes) -> None:
    assert unpack(body, "gzip", Limits()) == gzip.decompress(body) == DOCUMENT


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(DOCUMENT)[:-1],
        gzip.compress(DOCUMENT)[:-8] + b"\1" * 8,
        gzip.compress(DOCUMENT) + b"rest",
        gzip.compress(DOCUMENT) + gzip.compress(DOCUMENT)[:9],
        zlib.compress(DOCUMENT),
    ],
    ids=["cut off", "another sum", "more behind", "cut off behind", "not gzip"],
)
def test_what_gzip_refuses_is_refused(body: bytes) -> None:
    with pytest.raises(ProblemError, match="not complete gzip") as told:
        unpack(body, "gzip", Limits())

    assert told.value.status == 400


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"") * 60_000,
        gzip.compress(b"")[:10] + EMPTY_BLOCK * 220_000 + b"\x03\x00" + b"\0" * 8,
    ],
    ids=["empty members", "empty blocks"],
)
def test_what_costs_more_than_what_is_in_it_is_refused(body: bytes) -> None:
    gzip.decompress(body)  # it is whole

    with pytest.raises(ProblemError, match="compress it in one piece") as told:
        unpack(body, "gzip", Limits())

    assert told.value.status == 422
