"""Content of a view in `AppTest`."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from roofwatch.dashboard import data
from roofwatch.db.queries import questions


def texts(app: AppTest) -> str:
    """Return all text outside tables and charts."""
    kinds = (
        app.title,
        app.header,
        app.subheader,
        app.caption,
        app.markdown,
        app.text,
        app.info,
        app.warning,
        app.success,
        app.code,
    )
    said = [str(element.value) for kind in kinds for element in kind]
    said += [
        unescape(re.sub("<[^>]*>", " ", one.proto.body))
        for one in app.get("html")
        if "<style" not in one.proto.body
    ]
    said.append(unescape(re.sub("<[^>]*>", " ", markup(app))))
    return "\n".join([*said, *(f"{one.label} {one.value}" for one in app.metric)])


def markup(app: AppTest) -> str:
    """Return the HTML of the view's own figures and tables."""
    drawn = [json.loads(one.proto.json) for one in app.get("bidi_component") if one.proto.json]
    return "\n".join(one["html"] for one in drawn if "html" in one)


def table(app: AppTest, column: str) -> Any:
    """Return the table that has the column; names of columns without their units."""
    tables = (
        one.value.rename(columns=lambda name: re.sub(r" \((ns|bytes|J)\)$", "", name))
        for one in app.dataframe
    )
    return next(one for one in tables if column in one.columns)


def many(app: AppTest, label: str) -> Any:
    """Return the multiselect with this label."""
    return next(box for box in app.multiselect if box.label == label)


def choice(app: AppTest, label: str) -> Any:
    return next(one for one in app.selectbox if one.label == label)


def address(app: AppTest) -> dict[str, list[str]]:
    return {
        name: [value] if isinstance(value, str) else list(value)
        for name, value in app.query_params.items()
    }


def read_at_most(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Limit the number of runs that a view reads."""
    ask = data.ask

    def ask_for_few(question: Any, *args: Any, **named: Any) -> Any:
        return ask(
            question,
            *args,
            **{**named, **({"limit": most} if question is questions.list_fleet_runs else {})},
        )

    monkeypatch.setattr(data, "ask", ask_for_few)


def figures(app: AppTest) -> int:
    return len(app.get("plotly_chart"))
