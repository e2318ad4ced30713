"""The empty page that every view begins as, with a head start. Pure but for reading Streamlit's own files once.

Streamlit's page names the scripts of its frame alone: the one that draws an element is asked for when the first such
element arrives, then those that it needs, and Plotly's takes long to compile. Here the page names at once what its view
draws, and runs it while the server is waited for. It also says where the server is: below a view's own path, where
Streamlit looks first, there is none. And to a browser that was here before it says how to speak to the server, so that
this begins at once and not after two questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import orjson

from roofwatch.dashboard.figure_script import IMPORTED
from roofwatch.dashboard.view_links import SCRIPT

_EVERYWHERE = ("Html", "Selectbox")
_DRAWN_BY = {
    "overview": ("PageLink", "Checkbox", "Metric"),
    "regression": ("PlotlyChart", "PageLink"),
    "trends": ("PlotlyChart", "Multiselect", "Checkbox"),
    "compare": ("Checkbox", "DownloadButton"),
    "kernel": ("PlotlyChart",),
    "run": ("PlotlyChart", "Metric", "PageLink"),
    "runners": ("PlotlyChart",),
    "fleet": ("Metric", "PlotlyChart"),
}
"""What a view mostly draws when it opens, by the names of Streamlit's scripts. One that is missing is asked for later,
one too many is fetched for nothing; one that Streamlit does not have any more is left out."""
_HEAD_CHARACTERS = 8_192
"""Of a script, in which all its imports stand."""
_FIRST_SCRIPT = '<script type="module"'
_END_OF_HEAD = "</head>"
_SERVER = """<script>window.__streamlit={BACKEND_BASE_URL:new URL(".",document.baseURI).href};
if(/(^|; )_streamlit_xsrf=/.test(document.cookie))
window.__streamlit.HOST_CONFIG={allowedOrigins:[location.origin],useExternalAuthToken:false};</script>"""
"""The page's scripts are found relative to its folder too, whatever path a proxy puts in front. What the server answers
to the two questions brings the cookie, without which it takes nobody as signed in, so the first visit asks them."""
_RUN_WHEN_IDLE = (
    '<script type="module">(globalThis.requestIdleCallback??setTimeout)'
    "(()=>{for(const script of %s)import(script)})</script>"
)
"""What a view draws with is run while the browser waits for the server, not when the first figure has come."""


def elements_of(view: str) -> tuple[str, ...]:
    """By the names of Streamlit's scripts, the view by its name in the menu."""
    return (*_EVERYWHERE, *_DRAWN_BY.get(view, ()))


def first_page(view: str, static: Path, instead: Mapping[str, str] | None = None) -> str:
    """Streamlit's page with what this view will need.

    Args:
        view: By the name in the menu.
        static: The folder with Streamlit's page and scripts.
        instead: By the name of a script of Streamlit the path of the one of ours that takes its place.
    """
    page, instead = (static / "index.html").read_text(), instead or {}
    folder = static / "static" / "js"
    named = set(re.findall(r"static/js/([\w.-]+\.js)", page))
    addresses = {name: f"./{path}" for name, path in instead.items()}
    scripts = [name for name in _needed(folder, view) if name not in named]
    links = "".join(
        f'<link rel="modulepreload" crossorigin href="{addresses.get(name, _address(name))}">' for name in scripts
    )
    begun = [_address(name) for element in elements_of(view) for name in _named(folder, element)]
    run = _RUN_WHEN_IDLE % orjson.dumps(begun).decode() if begun else ""
    # before the first script that it is about, or a browser does not listen
    page = page.replace(_FIRST_SCRIPT, f"{_import_map(addresses)}{_FIRST_SCRIPT}", 1)
    return page.replace(_END_OF_HEAD, f"{_SERVER}{SCRIPT}{links}{run}{_END_OF_HEAD}", 1)


def _import_map(addresses: Mapping[str, str]) -> str:
    if not addresses:
        return ""
    imports = {_address(name): address for name, address in addresses.items()}
    return f'<script type="importmap">{orjson.dumps({"imports": imports}).decode()}</script>'


def _address(script: str) -> str:
    return f"./static/js/{script}"


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
        yield from (found[2] for found in IMPORTED.finditer(file.read(_HEAD_CHARACTERS)))
