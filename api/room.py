"""Whether the database's disk has room for what is sent."""

from __future__ import annotations

from sqlalchemy import Engine

from roofwatch.db.engine.disk_space import has_room


class Room:
    """Remembers that something could not be stored for want of room, and looks again when asked; while nothing failed,
    asking costs nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._was_full = False

    def note_full(self) -> None:
        self._was_full = True

    def is_full(self) -> bool:
        """Raises:
        DBAPIError: the database cannot be asked.
        """
        if self._was_full and has_room(self._engine):
            self._was_full = False
        return self._was_full
