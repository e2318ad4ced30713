"""How often Python looks for objects that hold each other, which it cannot let go otherwise."""

from __future__ import annotations

import gc

_NEW_OBJECTS = 200_000
_TIMES_LARGER = (20, 100)


def look_for_cycles_seldom() -> None:
    """For a process that reads and stores records: one is a hundred thousand objects, none of which holds itself.

    Python looks whenever there are 700 more, and looks through what it has again and again: half of the time that
    reading a record takes. What does hold itself waits longer to be let go; it is counted in objects, not in time, so
    there is never much of it.
    """
    gc.set_threshold(_NEW_OBJECTS, *_TIMES_LARGER)
