"""The empty page that every view begins as, with a head start. Pure but for reading Streamlit's own files once.

Streamlit's page names the scripts of its frame alone: the one that draws an element is asked for when the first such
element arrives, then those that it needs, and Plotly's takes long to compile. Here the page names at once what its view
draws, so that the browser has it ready when the server has answered. It also says where the server is: below a view's
own path, where Streamlit looks first, there is none. And to a browser that was here before it says how to speak to the
server, so that this begins at once and not after two questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_EVERYWHERE = ("Html", "Selectbox")
_DRAWN_BY = {
    "regression": ("PlotlyChart", "PageLink"),
    "trends": ("PlotlyChart", "Multiselect", "Checkbox"),
    "compare": ("Checkbox", "DownloadButton"),
    "kernel": ("PlotlyChart",),
    "run": ("PlotlyChart", "Metric", "PageLink"),
    "runners": ("PlotlyChart",),
    "fleet": ("Metric",),
}
"""What a view mostly draws when it opens, by the names of Streamlit's scripts. One that is missing is asked for later,
one too many is fetched for nothing; one that Streamlit does not have any more is left out."""
_IMPORTED = re.compile(r'(?:from|import)"\./([\w.-]+\.js)"')
_HEAD_CHARACTERS = 8_192
"""Of a script, in which all its imports stand."""
_END_OF_HEAD = "</head>"
_SERVER = """<script>window.__streamlit={BACKEND_BASE_URL:new URL(".",document.baseURI).href};
if(/(^|; )_streamlit_xsrf=/.test(document.cookie))
window.__streamlit.HOST_CONFIG={allowedOrigins:[location.origin],useExternalAuthToken:false};</script>"""
"""The page's scripts are found relative to its folder too, whatever path a proxy puts in front. What the server answers
to the two questions brings the cookie, without which it takes nobody as signed in, so the first visit asks them."""


def elements_of(view: str) -> tuple[str, ...]:
    """By the names of Streamlit's scripts, the view by its name in the menu."""
    return (*_EVERYWHERE, *_DRAWN_BY.get(view, ()))


def first_page(view: str, static: Path) -> str:
    """Streamlit's page with what this view will need.

    Args:
        view: By the name in the menu.
        static: The folder with Streamlit's page and scripts.
    """
    page = (static / "index.html").read_text()
    named = set(re.findall(r"static/js/([\w.-]+\.js)", page))
    scripts = [name for name in _needed(static / "static" / "js", view) if name not in named]
    links = "".join(f'<link rel="modulepreload" crossorigin href="./static/js/{name}">' for name in scripts)
    return page.replace(_END_OF_HEAD, f"{_SERVER}{links}{_END_OF_HEAD}", 1)


def _needed(folder: Path, view: str) -> list[str]:
    """File names: the scripts of the view's elements, and everything that those import."""
    found: dict[str, None] = {}
    waiting = [name for element in elements_of(view) for name in _named(folder, element)]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting += _imports(folder / name)
    return list(found)


def _named(folder: Path, element: str) -> Iterable[str]:
    """`PlotlyChart.D9Z0_fxz.js`: the middle changes with every version."""
    return (path.name for path in folder.glob(f"{element}.*.js"))


def _imports(script: Path) -> Iterator[str]:
    with script.open() as file:
        yield from _IMPORTED.findall(file.read(_HEAD_CHARACTERS))
