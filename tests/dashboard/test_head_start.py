"""What a browser is told to fetch before the first element of a view arrives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import streamlit

from roofwatch.dashboard.head_start import elements_of, first_page
from roofwatch.dashboard.navigation import VIEWS
from roofwatch.dashboard.view_links import SCRIPT

STREAMLIT = Path(streamlit.__file__).parent / "static"
PAGE = '<html><head><script type="module" src="./static/js/index.a1.js"></script></head><body></body></html>'


def preloaded(page: str) -> list[str]:
    return re.findall(r'<link rel="modulepreload" crossorigin href="\./static/js/([\w.-]+)">', page)


def made_up(folder: Path, **scripts: str) -> Path:
    """A folder as Streamlit has it, with scripts by the name of their element."""
    there = folder / "static" / "js"
    there.mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    for name, text in scripts.items():
        (there / f"{name}.a1.js").write_text(text)
    return folder


def test_a_page_names_the_scripts_of_its_view_and_what_those_import_each_once(tmp_path: Path) -> None:
    static = made_up(
        tmp_path,
        PlotlyChart='import{a}from"./index.a1.js";import"./fold.a1.js";import{b}from"./deep.a1.js";',
        Html='import{b}from"./deep.a1.js";',
        DataFrame="",
        fold='import{c}from"./deep.a1.js";',
        deep="",
        index="",
    )
    page = first_page("regression", static)
    assert preloaded(page) == ["Html.a1.js", "PlotlyChart.a1.js", "deep.a1.js", "fold.a1.js"]
    assert page.index("window.__streamlit") < page.index("</head>")


def test_a_script_of_ours_takes_the_place_of_streamlit_s(tmp_path: Path) -> None:
    static = made_up(tmp_path, PlotlyChart='import{a}from"./fold.a1.js";', fold="", index="")
    page = first_page("regression", static, {"PlotlyChart.a1.js": "figures/b2.js"})
    taken = '<script type="importmap">{"imports":{"./static/js/PlotlyChart.a1.js":"./figures/b2.js"}}</script>'
    assert page.index(taken) < page.index('<script type="module"')
    assert '<link rel="modulepreload" crossorigin href="./figures/b2.js">' in page
    assert preloaded(page) == ["fold.a1.js"]
    assert 'of ["./static/js/PlotlyChart.a1.js"]' in page


def test_what_streamlit_does_not_have_is_left_out(tmp_path: Path) -> None:
    assert preloaded(first_page("regression", made_up(tmp_path))) == []


@pytest.mark.parametrize("view", VIEWS)
def test_streamlit_has_every_script_that_a_view_names(view: str) -> None:
    before = (STREAMLIT / "index.html").read_text()
    page = first_page(view, STREAMLIT)
    names = preloaded(page)
    assert {name for name in names if not (STREAMLIT / "static" / "js" / name).is_file()} == set()
    assert {name.split(".")[0] for name in names} >= set(elements_of(view))
    # all of Streamlit's page is there
    added = page.replace(SCRIPT, "")
    for ours in (r"<script>window\.__streamlit=.*?</script>", r'<script type="module">\(globalThis.*?</script>'):
        added = re.sub(ours, "", added, flags=re.DOTALL)
    for name in set(names) - set(preloaded(before)):
        added = added.replace(f'<link rel="modulepreload" crossorigin href="./static/js/{name}">', "")
    assert added == before
