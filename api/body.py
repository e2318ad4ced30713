"""Read a request's body and unpack it: what is too long, too slow or a bomb costs no more than its limit."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO

import zstandard
from fastapi import Request

from roofwatch.api.limits import Limits
from roofwatch.api.problems import ProblemError, unavailable

_CHUNK_BYTES = 2**20
_PACKED_CHUNK_BYTES = 2**16
"""What comes after the end of a member is copied, so much each time."""
_PACKED_IN_VAIN_BYTES = 2**20
_GZIP_WBITS = 16 + zlib.MAX_WBITS
# what a frame may ask for, whatever its size: 2^27 is the most that the format's own tools take unasked
_ZSTD_WINDOW_BYTES = 2**27
_ENCODINGS = ("gzip", "zstd", "identity")
_RETRY_S = 5
_PACKED_ANEW = "pack it anew in one piece"
_SHORTER = "compress it, or split the run"


class Uploads:
    """Bodies that are being read in this process, all bounded together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held_bytes = 0

    async def read(self, request: Request, most_bytes: int, *, way_out: str = _SHORTER) -> bytes:
        """The body as it was sent.

        Args:
            request: Of one who may send it.
            most_bytes: Of the body.
            way_out: For who sends more.

        Raises:
            ProblemError: it is too long, too slow, or too many are being read.
        """
        parts: list[bytes] = []
        await self._receive(request, most_bytes, parts.append, way_out)
        return b"".join(parts)

    @contextlib.asynccontextmanager
    async def held(self, request: Request, most_bytes: int, *, way_out: str = _SHORTER) -> AsyncIterator[bytes]:
        """The body as `read` has it, which counts among those that are being read for as long as the `with` block:
        who waits for a turn holds it in memory too.
        """
        body = await self.read(request, most_bytes, way_out=way_out)
        self._held_bytes += len(body)
        try:
            yield body
        finally:
            self._held_bytes -= len(body)

    async def save(self, request: Request, file: IO[bytes], most_bytes: int) -> None:
        """Write the body to a file as it comes in.

        Raises:
            ProblemError: as for `read`, or there is no room for it.
        """
        try:
            await self._receive(request, most_bytes, file.write, _SHORTER)
            file.flush()
        except OSError:
            raise unavailable("the server has no room for this now; try again later", _RETRY_S) from None

    async def discard(self, request: Request, most_bytes: int) -> None:
        """Take what a refused client is sending, so that it gets to hear why: one that is cut off hears nothing.

        Raises:
            ProblemError: it is too slow.
        """
        chunks, size_bytes = request.stream(), 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_s):
                while size_bytes <= most_bytes and (chunk := await self._next(chunks)) is not None:
                    size_bytes += len(chunk)

    async def _receive(self, request: Request, most_bytes: int, take: Callable[[bytes], object], way_out: str) -> None:
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > most_bytes:
            raise _too_large(most_bytes, way_out)
        size_bytes = 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                chunks = request.stream()
                while (chunk := await self._next(chunks)) is not None:
                    size_bytes += len(chunk)
                    self._held_bytes += len(chunk)
                    take(chunk)
                    if size_bytes > most_bytes:
                        raise _too_large(most_bytes, way_out)
                    if self._held_bytes > self._limits.upload_bytes:
                        raise unavailable("too many bodies are being read at once; try again in a moment", _RETRY_S)
        except TimeoutError:
            detail = f"the body did not come within {self._limits.body_s:g} s; send it again, compressed"
            raise ProblemError(408, "timed-out", detail, {"Connection": "close"}) from None
        finally:
            self._held_bytes -= size_bytes

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout(self._limits.silence_s):
                return await anext(chunks, None)
        except TimeoutError:
            detail = f"nothing of the body came for {self._limits.silence_s:g} s; send it again"
            raise ProblemError(408, "timed-out", detail, {"Connection": "close"}) from None


def unpack(body: bytes, encoding: str, limits: Limits) -> bytes:
    """The document in a body.

    Args:
        body: As it was sent.
        encoding: The header Content-Encoding.
        limits: Of which no more than `document_bytes` is ever held.

    Raises:
        ProblemError: an encoding that is not known, a body that is damaged, or more than may be in it.
    """
    kind = encoding.strip().lower() or "identity"
    if kind not in _ENCODINGS:
        raise ProblemError(
            415,
            "unsupported-media",
            f"this Content-Encoding is not known here; send one of {', '.join(_ENCODINGS)}",
            {"Accept-Encoding": ", ".join(_ENCODINGS)},
        )
    try:
        if kind == "gzip":
            return _join_at_most(_inflated(body, limits.members), limits.document_bytes)
        if kind == "zstd":
            decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
            with decompressor.stream_reader(body, read_across_frames=True) as unpacked:
                return _join_at_most(iter(lambda: unpacked.read(_CHUNK_BYTES), b""), limits.document_bytes)
    except (EOFError, zlib.error, zstandard.ZstdError):
        raise ProblemError(
            400, "bad-request", f"the body is not whole {kind}, as its Content-Encoding says; send it again"
        ) from None
    return body


def _too_large(most_bytes: int, way_out: str) -> ProblemError:
    return ProblemError(413, "too-large", f"a body has at most {most_bytes} bytes here; {way_out}")


def _inflated(body: bytes, most_members: int) -> Iterator[bytes]:
    """What is in a gzip file, in pieces: its members one after the other, and zeros after the last.

    Members that hold next to nothing, or blocks within one, would cost a second for every five megabytes. So they are
    counted, and what is packed may hardly be longer than what is in it, as no packer makes it.

    Source: RFC 1952, 2.2; zeros are skipped as by gzip itself.
    """
    if not body:
        return
    view, at, size_bytes = memoryview(body), 0, 0
    for _ in range(most_members):
        inflater = zlib.decompressobj(_GZIP_WBITS)
        while not inflater.eof:
            packed = view[at : at + _PACKED_CHUNK_BYTES]
            chunk = inflater.decompress(packed, _CHUNK_BYTES)
            if not packed and not chunk:
                raise EOFError
            at += len(packed) - len(inflater.unused_data if inflater.eof else inflater.unconsumed_tail)
            size_bytes += len(chunk)
            if at > size_bytes + _PACKED_IN_VAIN_BYTES:
                raise ProblemError(422, "too-complex", f"the body is longer packed than unpacked; {_PACKED_ANEW}")
            yield chunk
        if body[at : at + 1] in {b"", b"\0"}:
            if body.count(b"\0", at) < len(body) - at:
                raise EOFError
            return
    raise ProblemError(422, "too-complex", f"the body has more than {most_members} members of gzip; {_PACKED_ANEW}")


def _join_at_most(chunks: Iterator[bytes], limit: int) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > limit:
            detail = f"the body unpacks to more than {limit} bytes, the most that a record has; split the run"
            raise ProblemError(413, "too-large", detail)
        parts.append(chunk)
    return b"".join(parts)
