"""The script that draws figures: Streamlit's own, without the kinds of traces that no figure here has. Pure but for
reading Streamlit's once.

Streamlit brings all of Plotly: 4.7 MB, of which maps, surfaces and what draws them by a graphics card are three
quarters. A browser reads, compiles and runs all of it before the first figure. Plotly's bundle is a list of modules,
each a function that is called when another one needs it, so a module that nothing needs any more can be left empty.
Where the bundle does not look as this expects, there is no such script, and Streamlit's is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

KINDS = frozenset({"bar", "scatter"})
"""Of traces: all that figures are drawn with. Scatter is part of Plotly's core."""
_HEAD = re.compile(r'[,; ]([\w$]+)=_\(\{"([^"]+)"\((?:e(?:,t)?)?\)\{')
"""Of a module: its name, and the file that it was."""
_LAST = 'return _({"lib/index.js"'
"""The module that names the kinds of traces; nothing needs it."""
_REGISTERED = re.compile(r"\.register\(\[([\w$(),]+)\]\)")
_NEEDED = re.compile(r"([\w$]+)\(\)")
_END = "}})"
_CORE = "lib/core.js"
IMPORTED = re.compile(r'(from|import)"\./([\w.-]+\.js)"')
"""What one of Streamlit's scripts imports from beside it."""
_ELSEWHERE = r'\1"../static/js/\2"'
_FOLDER = "figures"


@dataclass(frozen=True)
class _Module:
    file: str
    start: int
    """Of its body."""
    end: int
    body: str

    @cached_property
    def needs(self) -> frozenset[str]:
        return frozenset(_NEEDED.findall(self.body))


@dataclass(frozen=True)
class SlimScript:
    path: str
    """Where it is served, below the dashboard's address; another content has another one, as with Streamlit's own."""
    text: str


def slim_scripts(folder: Path) -> dict[str, SlimScript]:
    """What takes the place of Streamlit's script, by that one's name; empty where it is not as expected.

    Args:
        folder: With Streamlit's scripts.
    """
    found = {path.name: slim_script(path.read_text()) for path in folder.glob("PlotlyChart.*.js")}
    return {
        # what it imports from beside it lies elsewhere now
        name: SlimScript(f"{_FOLDER}/{sha256(text.encode()).hexdigest()[:16]}.js", IMPORTED.sub(_ELSEWHERE, text))
        for name, text in found.items()
        if text is not None
    }


def slim_script(script: str) -> str | None:
    """The same script with the traces of `KINDS` alone; None where it is built otherwise than expected.

    Args:
        script: Streamlit's `PlotlyChart`, with Plotly in it.
    """
    last = script.rfind(_LAST)
    registered = _REGISTERED.search(script, last) if last >= 0 else None
    modules = _modules_of(script, last)
    by_file = {module.file: name for name, module in modules.items()}
    kept = [by_file.get(f"lib/{kind}.js") for kind in sorted(KINDS - {"scatter"})]
    core = by_file.get(_CORE)
    if registered is None or core is None or any(name is None for name in kept):
        return None
    if not all(module.body.rstrip(";").endswith(_END) for module in modules.values()):
        return None
    traces = [name for name in kept if name is not None]
    needed = _needed({core, *traces}, modules)
    parts, at = [], 0
    for name, module in modules.items():
        if name not in needed:
            # what ends it says whether another one follows
            parts += [script[at : module.start], _END, module.body[len(module.body.rstrip(";")) :]]
            at = module.end
    parts.append(script[at : registered.start(1)])
    parts.append(",".join(f"{name}()" for name in traces))
    parts.append(script[registered.end(1) :])
    return "".join(parts)


def _modules_of(script: str, last: int) -> dict[str, _Module]:
    """By name, in their order. A module reaches to the next one's head."""
    heads = list(_HEAD.finditer(script, 0, max(last, 0)))
    ends = [*(head.start() for head in heads), last][1:]
    return {
        head[1]: _Module(head[2], head.end(), end, script[head.end() : end])
        for head, end in zip(heads, ends, strict=True)
    }


def _needed(wanted: Iterable[str], modules: Mapping[str, _Module]) -> set[str]:
    """Those, and all that they need."""
    found, waiting = set[str](), list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [need for need in modules[name].needs if need in modules]
    return found
