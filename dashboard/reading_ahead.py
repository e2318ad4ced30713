"""What a view reads first, begun when its page is asked for: while a browser starts the page, nobody else reads.

The view asks the same and finds the answer there, or waits for it. What it says of an answer that cannot be had is said
where it asks.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs

if TYPE_CHECKING:  # a server that starts answers before it has imported what reads
    from roofwatch.dashboard.filters import Filters

_MOST_AT_ONCE = 2
"""A machine has something else to do: pages that are asked for meanwhile are read by their views alone."""


THREAD_NAME = "reading ahead"
"""Of all that read for nobody yet: Streamlit would warn in the log, each time, that they have no page to draw on."""
_WARNS = "streamlit.runtime.scriptrunner_utils.script_run_context"


class _ReadingView(Protocol):
    """A module of `views/`."""

    def read_ahead(self, project: str, filters: Filters, asked: Mapping[str, str]) -> None: ...


class ReadingAhead:
    """Beside what is served."""

    def __init__(self) -> None:
        logging.getLogger(_WARNS).addFilter(_is_about_a_page)
        self._free = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def begin(self, view: str, query: str) -> threading.Thread | None:
        """Read what a view asks first, unless enough is read already.

        Args:
            view: By its name in the menu.
            query: Of its address.

        Returns:
            What reads; None where nothing does.
        """
        if not self._free.acquire(blocking=False):
            return None
        # no server waits for it when it ends
        reading = threading.Thread(target=self._read, args=(view, query), name=THREAD_NAME, daemon=True)
        reading.start()
        return reading

    def _read(self, view: str, query: str) -> None:
        try:
            read_ahead(view, parse_qs(query))
        finally:
            self._free.release()


def _is_about_a_page(record: logging.LogRecord) -> bool:
    return record.threadName != THREAD_NAME


def read_ahead(view: str, asked: Mapping[str, Sequence[str]]) -> None:
    """What a view reads at an address whatever else is chosen in it.

    Args:
        view: By its name in the menu.
        asked: The parameters of the address, each with its values.
    """
    from roofwatch.dashboard import data
    from roofwatch.dashboard.errors import UnreadServerError
    from roofwatch.dashboard.filters import PARAMETERS, Filters, options_of
    from roofwatch.db.errors import StoreError
    from roofwatch.settings import SettingsError

    # the view says what is amiss
    with contextlib.suppress(StoreError, SettingsError, UnreadServerError):
        one_of_each = {name: values[0] for name, values in asked.items()}
        facets = data.read_facets(one_of_each.get("project"))
        project = one_of_each.get("project", next(iter(facets.projects), None))
        if project is None or project not in facets.projects:
            return
        owners = data.owners_of(facets)
        options = options_of(facets, owners)
        chosen = {name: [value for value in asked.get(name, ()) if value in options[name]] for name in PARAMETERS}
        module: _ReadingView = importlib.import_module(f"roofwatch.dashboard.views.{view}")
        module.read_ahead(project, Filters(facets, chosen, owners), one_of_each)
