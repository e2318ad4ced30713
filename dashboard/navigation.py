"""The screens, their addresses, and where the addresses of earlier versions lead."""

from collections.abc import Mapping

VIEWS: Mapping[str, str] = {
    "ledger": "Ledger",
    "roof": "Roof",
    "compare": "A ↔ B",
    "machines": "Machines",
}
"""Title by the name of the file in `views/`, which is the path in the address too; the first is the
front page.
"""
FRONT_PAGE = next(iter(VIEWS))
MOVED: Mapping[str, str] = {
    "overview": "ledger",
    "regression": "ledger",
    "trends": "roof",
    "kernel": "roof",
    "runners": "machines",
    "run": "machines",
    "fleet": "machines",
}
"""New name of a screen by the old one; parameters keep their names."""


def path_of(view: str) -> str:
    """Return the path of a view, relative to that of any other."""
    if view == FRONT_PAGE:
        return "./"
    return view


def file_of(path: str) -> str | None:
    """Return the file of the view at the last part of a path; None if there is none."""
    name = MOVED.get(path, path) or FRONT_PAGE
    if name in VIEWS:
        return f"views/{name}.py"
    return None
