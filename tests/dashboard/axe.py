"""Accessibility violations of a page, found by axe-core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

GRAVE = {"serious", "critical"}
_HEADINGS = "heading-order"


def grave_violations(page: Page) -> list[str]:
    """Return serious and critical violations, and headings that skip a level, one line per element."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {_selector(node)}: {node['html'][:200]} {_why(node)}"
        for rule in found
        if rule["impact"] in GRAVE or rule["id"] == _HEADINGS
        for node in rule["nodes"]
    ]


def _selector(node: Mapping[str, Any]) -> str:
    return " ".join(map(str, node["target"]))


def _why(node: Mapping[str, Any]) -> str:
    return " ".join(check["message"] for check in node["any"])
