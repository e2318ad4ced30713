"""The views, in the order of the menu."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MenuEntry:
    title: str
    icon: str


VIEWS: Mapping[str, MenuEntry] = {
    "overview": MenuEntry("Overview", ":material/home:"),
    "regression": MenuEntry("Regression", ":material/search:"),
    "trends": MenuEntry("Trends", ":material/show_chart:"),
    "compare": MenuEntry("Compare", ":material/compare_arrows:"),
    "kernel": MenuEntry("Kernel", ":material/memory:"),
    "run": MenuEntry("Run", ":material/play_circle:"),
    "runners": MenuEntry("Runners", ":material/dns:"),
    "fleet": MenuEntry("Fleet economics", ":material/payments:"),
}
"""By the name of the file in `views/`, which is the path in the address too; the first is the front page."""
