"""The file of an export: lines in zstd, written whole, and not believed before it has been read to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import zstandard

from roofwatch.collector.outbox.atomic_write import reason_of, whole_file
from roofwatch.collector.record.record import MAX_RECORD_BYTES
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.archive import AnyLine, Header, Manifest, Tally, kind_of, parse

_LEVEL = 9
# what zstd's own tools take unasked, whatever a frame asks for
_WINDOW_BYTES = 2**27
_CHUNK_BYTES = 2**20
_LINE_BYTES = MAX_RECORD_BYTES + 2**20


def write_archive(path: Path, lines: Iterable[bytes]) -> int:
    """Write an export; its size in bytes. The file is there once it is whole, and this user's alone.

    Raises:
        StoreError: it cannot be written; nothing half-written is left.
    """
    try:
        with whole_file(path, mode=0o600) as file:
            compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
            with compressor.stream_writer(file, closefd=False) as packed:
                for line in lines:
                    packed.write(line)
        return path.stat().st_size
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {reason_of(error)}; nothing was left there") from None


def check_archive(path: Path, *, on_progress: Callable[[int, int], None] = lambda _done, _all: None) -> Manifest:
    """Read an export to its end, and store nothing of it.

    Returns:
        What it says that it holds, and does hold.

    Raises:
        StoreError: it is damaged, not whole, not an export, or of a kind that is not known here.
    """
    tally = Tally()
    found: Manifest | None = None
    for number, line in enumerate(_read_lines(path, on_progress), start=1):
        if found is not None:
            raise StoreError(f"{path}: goes on after its end; copy the file again")
        if number == 1 and not isinstance(_parse(path, line, number), Header):
            raise StoreError(f"{path}: does not begin as an export does")
        kind = kind_of(line)
        if not kind:
            _parse(path, line, number)
        if kind == "manifest":
            end = _parse(path, line, number)
            assert isinstance(end, Manifest)
            found = end
        else:
            tally.add(line, kind)
    if found is None:
        raise StoreError(f"{path}: ends too early; copy the file again, or export again")
    if found != tally.manifest():
        raise StoreError(f"{path}: does not hold what it says: changed or damaged; copy it again, or export again")
    return found


def read_archive(
    path: Path, *, on_progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Iterator[tuple[int, AnyLine]]:
    """The lines of an export with their numbers, one at a time. `check_archive` comes first.

    Args:
        path: Of the file.
        on_progress: Told how many bytes of the file have been read, of how many.

    Raises:
        StoreError: as `check_archive`.
    """
    for number, line in enumerate(_read_lines(path, on_progress), start=1):
        yield number, _parse(path, line, number)


def _parse(path: Path, line: bytes, number: int) -> AnyLine:
    try:
        return parse(line, number=number)
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None


def _read_lines(path: Path, on_progress: Callable[[int, int], None]) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            size_bytes = path.stat().st_size
            decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
            with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as unpacked:
                waiting: list[bytes] = []
                waiting_bytes = 0
                while chunk := unpacked.read(_CHUNK_BYTES):
                    on_progress(file.tell(), size_bytes)
                    *whole, rest = chunk.split(b"\n")
                    for line in whole:
                        yield b"".join((*waiting, line, b"\n"))
                        waiting, waiting_bytes = [], 0
                    waiting.append(rest)
                    waiting_bytes += len(rest)
                    if waiting_bytes > _LINE_BYTES:
                        raise StoreError(f"{path}: a line of more than {_LINE_BYTES} bytes, which no record has")
                if waiting_bytes:
                    yield b"".join(waiting)
    except zstandard.ZstdError as error:
        raise StoreError(f"{path}: damaged, or no export: {error}; copy the file again") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
