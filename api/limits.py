"""Limits on what clients send: size, nesting, time and rate."""

import asyncio
import contextlib
import io
import math
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import IO

import pydantic_core
from fastapi import Request
from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from uvicorn.protocols.http.h11_impl import H11Protocol

from roofwatch.api.problems import ProblemError, unavailable

_MIB = 2**20
_RETRY_S = 5
_HINT = "compress it, or measure fewer cases at once and push their records"

_ENCODINGS = ("gzip", "identity")
# zlib's way to say that a gzip header is expected
_GZIP_WBITS = 16 + zlib.MAX_WBITS
# decompressed at once, so a small bomb cannot fill the memory
_PIECE_BYTES = 2**20

_CONTAINERS = frozenset({list, dict})
_FLAT = frozenset({int, float, bool, type(None)})
"""Types of values without others in them: most of a record is lists of numbers."""


@dataclass(frozen=True)
class Limits:
    body_bytes: int = 64 * _MIB
    """Largest request, as sent."""
    discarded_bytes: int = 1_024 * _MIB
    """Largest record that is read to its end to refuse it."""
    document_bytes: int = 64 * _MIB
    """Largest record, decompressed. This and the next limits keep a request below 200 MB."""
    decision_bytes: int = 2**15
    """Largest triage decision or release from quarantine."""
    question_bytes: int = 4 * _MIB
    """Largest query from a dashboard, which may list many cases."""
    answer_bytes: int = 256 * _MIB
    """Largest answer to a dashboard's query."""
    upload_bytes: int = 256 * _MIB
    """Total size of all request bodies in memory."""
    depth: int = 32
    """Deepest nesting of arrays and objects; a record has seven levels."""
    containers: int = 500_000
    """Arrays and objects in a document."""
    values: int = 3_000_000
    """Commas in a document, which bound its values and keys."""
    strings: int = 1_500_000
    """Texts and keys in a document."""
    string_characters: int = 100_000
    entries: int = 50_000
    """Of one array: cases, results of one kind, samples of a block."""
    readings: int = 300_000
    """Of a device during a run: one each 50 ms for four hours."""
    artefacts: int = 1_000
    """Files that a record names."""
    artefact_bytes: int = 256 * _MIB
    """Largest file."""
    run_artefact_bytes: int = 2_048 * _MIB
    """Total size of a run's files."""
    ingests: int = 2
    """Records and files stored at once. The largest record needs about 200 MB of memory."""
    turn_s: float = 30.0
    """Wait for one of these slots."""
    head_s: float = 10.0
    """For the head of a request."""
    silence_s: float = 20.0
    """Between two chunks of a body."""
    body_s: float = 300.0
    """For a whole body."""
    idle_s: int = 30
    """Between two requests on a connection."""
    connections: int = 500
    points: int = 50_000
    """Most points of all series on a page, unless one series has more."""
    query_s: float = 30.0
    """For one SQL statement."""
    requests: str = "500 per 10 seconds"
    """Per token, or per repository of a workflow."""
    failures: str = "30 per 1 minute"
    """Wrong tokens per address."""


class RateLimit:
    """Counts requests by client in this process; `rate` reads like `500 per 10 seconds`, `detail`
    is for the client.
    """

    def __init__(self, rate: str, detail: str) -> None:
        self._item = parse(rate)
        self._detail = detail
        self._window = MovingWindowRateLimiter(MemoryStorage())

    def hit(self, client: str) -> None:
        """Count a request.

        Raises:
            ProblemError: 429 with `Retry-After`.
        """
        if not self._window.hit(self._item, client):
            wait_s = self._window.get_window_stats(self._item, client).reset_time - time.time()
            retry_after = str(max(1, math.ceil(wait_s)))
            raise ProblemError(429, "rate-limited", self._detail, {"Retry-After": retry_after})


class BodyReader:
    """Reads bodies within the limits of each and of all together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held_bytes = 0

    @contextlib.asynccontextmanager
    async def read(
        self, request: Request, max_bytes: int, *, hint: str = _HINT
    ) -> AsyncIterator[bytes]:
        """Read the body into memory; otherwise as `save`."""
        file = io.BytesIO()
        async with self.save(request, file, max_bytes, hint=hint):
            yield file.getvalue()

    @contextlib.asynccontextmanager
    async def save(
        self, request: Request, file: IO[bytes], max_bytes: int, *, hint: str = _HINT
    ) -> AsyncIterator[None]:
        """Write the body to a file. It counts towards `upload_bytes` until the block ends.

        Args:
            request: Of an authenticated client.
            file: To write to.
            max_bytes: Of the body.
            hint: What to do about a longer body, for the client.

        Raises:
            ProblemError: too long, too slow, too many bodies at once, or a full disk.
        """
        held_bytes = 0
        try:
            async for chunk in self._chunks(request, max_bytes, hint):
                held_bytes += len(chunk)
                self._held_bytes += len(chunk)
                # many bodies at once fill the disk as well as one large one
                if self._held_bytes > self._limits.upload_bytes:
                    raise unavailable(
                        "too many bodies are being read at once; try again in a moment", _RETRY_S
                    )
                try:
                    file.write(chunk)
                except OSError:
                    raise unavailable(
                        "the server has no disk space for this now; try again later", _RETRY_S
                    ) from None
            yield
        finally:
            self._held_bytes -= held_bytes

    async def discard(self, request: Request, max_bytes: int) -> None:
        """Read and drop the body of a refused request; a client that is cut off would not read the
        answer.
        """
        with contextlib.suppress(ProblemError):
            async for _ in self._chunks(request, max_bytes, _HINT):
                pass

    async def _chunks(self, request: Request, max_bytes: int, hint: str) -> AsyncIterator[bytes]:
        too_large = ProblemError(
            413, "too-large", f"a body has at most {max_bytes} bytes here; {hint}"
        )
        announced = request.headers.get("content-length", "")
        # refused before a byte is read
        if announced.isdecimal() and int(announced[:20]) > max_bytes:
            raise too_large
        limits, clock = self._limits, asyncio.get_running_loop().time
        chunks, deadline_s, size_bytes = request.stream(), clock() + limits.body_s, 0
        while True:
            try:
                # a client that sends a byte a minute holds a connection for days
                async with asyncio.timeout_at(min(deadline_s, clock() + limits.silence_s)):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                detail = (
                    f"a body must arrive within {limits.body_s:g} s, with pauses of at most "
                    f"{limits.silence_s:g} s"
                )
                raise ProblemError(
                    408, "timed-out", f"{detail}; send it again", {"Connection": "close"}
                ) from None
            if chunk is None:
                return
            size_bytes += len(chunk)
            if size_bytes > max_bytes:
                raise too_large
            yield chunk


def unpack(body: bytes, encoding: str, limits: Limits) -> bytes:
    """Decompress a body by its Content-Encoding.

    Raises:
        ProblemError: an unknown encoding, a damaged body, or a document that is too large.
    """
    kind = encoding.strip().lower() or "identity"
    if kind not in _ENCODINGS:
        detail = f"unknown Content-Encoding; send one of {', '.join(_ENCODINGS)}"
        raise ProblemError(
            415, "unsupported-media", detail, {"Accept-Encoding": ", ".join(_ENCODINGS)}
        )
    limit = limits.document_bytes
    detail = f"the body decompresses to more than {limit} bytes; split the run"
    document, is_complete = body, True
    if kind == "gzip":
        # the body's end declares its length: what is too long is counted and never held
        declared_bytes = int.from_bytes(body[-4:], "little")
        if declared_bytes > limit and _is_longer(body, limit):
            raise ProblemError(413, "too-large", detail)
        gzip = zlib.decompressobj(_GZIP_WBITS)
        try:
            document = gzip.decompress(body, limit + 1)
            is_complete = gzip.eof and not gzip.unused_data
        except zlib.error:
            is_complete = False
    if len(document) > limit:
        raise ProblemError(413, "too-large", detail)
    if not is_complete:
        raise ProblemError(400, "bad-request", f"the body is not complete {kind}; send it again")
    return document


def _is_longer(body: bytes, limit: int) -> bool:
    """Whether a body decompresses to more than a number of bytes; a damaged one does not."""
    gzip = zlib.decompressobj(_GZIP_WBITS)
    byte_count = 0
    try:
        # by pieces: a bomb is not unpacked to learn its size
        while body and byte_count <= limit:
            byte_count += len(gzip.decompress(body, _PIECE_BYTES))
            body = gzip.unconsumed_tail
    except zlib.error:
        return False
    return byte_count > limit


def parse_json(document: bytes, limits: Limits) -> object:
    """Parse a document of limited size. Values are counted before parsing, which multiplies their
    size.

    Raises:
        ProblemError: not JSON, or more of something than the limits allow.
    """
    for count, limit, name in (
        (document.count(b"[") + document.count(b"{"), limits.containers, "arrays and objects"),
        (document.count(b","), limits.values, "values"),
        (document.count(b'"') // 2, limits.strings, "texts and keys"),
    ):
        if count > limit:
            raise _too_complex(f"{count} {name}", limit)
    try:
        # orjson would first build a tree of its own, which takes four times the document
        parsed: object = pydantic_core.from_json(document, allow_inf_nan=False, cache_strings="all")
    except ValueError as error:
        raise ProblemError(400, "bad-request", f"the body is not JSON: {error}") from None
    # the caller keeps no reference: the values alone stay in memory
    del document
    if not isinstance(parsed, dict):
        _check_values(parsed, limits)
        return parsed
    others = {name: value for name, value in parsed.items() if name != "telemetry"}
    _check_values(others, limits)
    # a run of some hours has more readings than anything else
    _check_values(parsed.get("telemetry"), replace(limits, entries=limits.readings))
    if isinstance(parsed.get("artefacts"), list):
        count = len(parsed["artefacts"])
        if count > limits.artefacts:
            raise _too_complex(f"a list of {count} entries", limits.artefacts)
    return parsed


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection without a complete head in time; uvicorn itself has no such timeout."""

    head_s = Limits.head_s
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]  # as uvicorn's own
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._deadline is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._deadline = self.loop.call_later(self.head_s, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _check_values(parsed: object, limits: Limits) -> None:
    """Check depth and strings, level by level."""
    level = [parsed]
    for depth in range(limits.depth + 2):
        strings = [value for value in level if type(value) is str]
        containers = [value for value in level if type(value) in _CONTAINERS]
        # deeper documents take a parser's stack
        if depth == limits.depth and containers:
            raise _too_complex(f"more than {limits.depth} nested arrays and objects", limits.depth)
        level = []
        for container in containers:
            if isinstance(container, dict):
                strings += container
                level += container.values()
            elif isinstance(container, list):
                if len(container) > limits.entries:
                    raise _too_complex(f"a list of {len(container)} entries", limits.entries)
                # most lists hold numbers, which have nothing to check
                if not _FLAT.issuperset(map(type, container)):
                    level += container
        longest = max(map(len, strings), default=0)
        if longest > limits.string_characters:
            raise _too_complex(f"a string of {longest} characters", limits.string_characters)
        if not level:
            return


def _too_complex(contents: str, limit: int) -> ProblemError:
    return ProblemError(
        422,
        "too-complex",
        f"the document has {contents}, at most {limit} are allowed; split the run",
    )
