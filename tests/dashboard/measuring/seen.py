"""What a view drew."""

from __future__ import annotations

from typing import Any


def figures(app: Any) -> int:
    return len(app.get("plotly_chart"))
