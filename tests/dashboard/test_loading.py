"""What a view says of itself while it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard import data
from roofwatch.dashboard.frame import READING
from roofwatch.db.errors import StoreError
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import store_history


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The captions in the order in which they were written, and `read` for each answer that was asked for."""
    seen: list[str] = []
    write = DeltaGenerator.caption

    def note(self: DeltaGenerator, body: Any, *args: Any, **more: Any) -> DeltaGenerator:
        seen.append(str(body))
        return write(self, body, *args, **more)

    def noted(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **more: Any) -> Any:
            seen.append("read")
            return read(*args, **more)

        return reading

    monkeypatch.setattr(DeltaGenerator, "caption", note)
    for name in ("read_facets", "list_triaged", "list_runner_standings", "list_fleet_runs", "list_commits"):
        monkeypatch.setattr(data, name, noted(getattr(data, name)))
    return seen


@pytest.mark.parametrize("view", ["overview", "compare", "run"])
def test_a_view_says_that_it_reads_before_it_does_and_no_longer_when_it_has(
    open_view: OpenView, store: Engine, said: list[str], view: str
) -> None:
    store_history(store)
    app = open_view(view)

    first, last = (place(at for at, one in enumerate(said) if one == "read") for place in (min, max))
    assert any(READING in one for one in said[:first])
    assert not any(READING in one for one in said[last:])
    assert not any(READING in one.value for one in app.caption)
    assert "Times: UTC." in app.caption[0].value


def test_a_view_that_cannot_be_read_does_not_say_that_it_goes_on_reading(
    open_view: OpenView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str | None) -> None:
        raise StoreError("not there")

    monkeypatch.setattr(data, "read_facets", refuse)
    app = open_view("overview")
    assert "not there" in app.error[0].value
    assert not any(READING in one.value for one in app.caption)
