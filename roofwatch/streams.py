"""The standard streams of a command, where one of them is closed, full, or a pipe that nobody reads."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from roofwatch.terminal import OutputError, silence

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_NOBODY_READS = 141
"""128 + SIGPIPE, as the shell says of a tool that this signal ended. Nothing of ours may end by it, since servers must
not, and 1, as click has it, would be a regression.
"""


@contextmanager
def standard_streams() -> Iterator[None]:
    """Have them for a `with` block, at whose end all that was printed is out. Who has put another stream in the place
    of standard output, to read what is printed, keeps it.

    Raises:
        OutputError: standard output cannot be written, whatever else failed.
        SystemExit: nobody reads it any more.
    """
    if sys.stdout is not sys.__stdout__:
        yield
        return
    _take_closed()
    output = _Output()
    sys.stdout = _text_to(output, sys.stdout)
    try:
        yield
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            output.failure = leaving.__context__
        raise
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            output.failure = error
        if output.failure is not None:
            silence(1)
            _leave(output.failure)


class _Output(io.FileIO):
    """Standard output, which remembers that it could not be written: whoever was told may have said nothing."""

    failure: OSError | None = None

    def __init__(self) -> None:
        super().__init__(1, "wb", closefd=False)

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            self.failure = error
            raise


def _take_closed() -> None:
    """Take the numbers of closed streams, as what is opened next would have them, and be written what is printed."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # the lowest one that is free. One that is only for reading refuses what is written, as a closed one does
            os.open(os.devnull, mode)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for as long as the process lives


def _text_to(output: _Output, before: TextIO | None) -> TextIO:
    """A stream to it, of the kind that Python made."""
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(output), "utf-8")
    return io.TextIOWrapper(
        # as PYTHONUNBUFFERED wants it, each write goes out by itself
        output if before.write_through else io.BufferedWriter(output),
        before.encoding,
        before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _leave(failure: OSError) -> None:
    if failure.errno == errno.EPIPE:
        silence(2)  # which may be the same pipe
        raise SystemExit(_NOBODY_READS) from None
    raise OutputError(f"standard output cannot be written: {failure.strerror}") from None
