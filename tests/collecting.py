"""Test files are collected by all of pytest's workers, which would each compile all that they load: half a minute's
work. Where nothing was compiled yet, the first worker collects while the others wait, and load what it has compiled.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path


def is_first_time() -> bool:
    """No test was collected with this Python yet, and what is compiled is kept."""
    compiled = Path(cache_from_source(__file__)).parent
    return not sys.dont_write_bytecode and not list(compiled.glob("test_*"))


@contextlib.contextmanager
def after_the_first(note: Path) -> Iterator[None]:
    """Whoever comes first has it to itself; all others go on once that one is through, or gone.

    Args:
        note: An empty file that all share.
    """
    with note.open("r+") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        if mine.read():
            fcntl.flock(mine, fcntl.LOCK_UN)
            yield
        else:
            yield
            mine.write("collected")
