"""The script that draws figures: what is left of Streamlit's."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest
import streamlit

from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.figure_script import KINDS, slim_script, slim_scripts

SCRIPTS = Path(streamlit.__file__).parent / "static" / "static" / "js"
MODULES = (
    'import{a}from"./index.a1.js";(()=>{var c=_({"lib/core.js"(e,t){var n=s();t.exports=n}}),'
    's=_({"src/scatter.js"(e){e.name=`scatter`}}),g=_({"src/globe.js"(e){e.name=`globe`}}),'
    'b=_({"lib/bar.js"(e,t){t.exports=s()}}),m=_({"lib/map.js"(e,t){t.exports=g()}});'
)
LAST = 'return _({"lib/index.js"(e,t){var n=c();n.register([b(),m()]),t.exports=n}})()})();'


def test_what_no_trace_of_ours_needs_is_left_empty_and_all_else_stays() -> None:
    slim = slim_script(MODULES + LAST)
    assert slim is not None
    assert "globe`" not in slim
    emptied = MODULES.replace("e.name=`globe`", "").replace("t.exports=g()", "")
    assert slim == emptied + LAST.replace("b(),m()", "b()")


@pytest.mark.parametrize(
    "script",
    [
        "",
        MODULES,
        MODULES + LAST.replace("register", "learn"),
        MODULES.replace("lib/bar.js", "lib/bars.js") + LAST,
        MODULES.replace("lib/core.js", "lib/heart.js") + LAST,
        MODULES.replace("}}),g=", "}}),more(),g=") + LAST,
    ],
    ids=["nothing", "no list of traces", "another list", "no bars", "no core", "code between modules"],
)
def test_a_script_that_is_built_otherwise_stays_as_it_is(script: str) -> None:
    assert slim_script(script) is None


def test_the_script_of_this_streamlit_becomes_a_third_and_finds_what_it_imports(tmp_path: Path) -> None:
    ((name, slim),) = slim_scripts(SCRIPTS).items()
    whole = (SCRIPTS / name).read_text()
    assert len(slim.text) < len(whole) / 3
    assert slim.text.count('from"../static/js/') == whole.count('from"./')
    # another content has another address
    (tmp_path / name).write_text(MODULES + LAST)
    (other,) = slim_scripts(tmp_path).values()
    assert other.path != slim.path
    assert slim_scripts(tmp_path / "nowhere") == {}


def test_a_figure_that_the_script_could_not_draw_is_refused() -> None:
    assert "pie" not in KINDS
    with pytest.raises(ValueError, match="pie"):
        show_figure(go.Figure([go.Pie(values=[1.0])]), key="pie")
