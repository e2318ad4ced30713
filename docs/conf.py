"""Sphinx configuration of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

project = "roofwatch"
author = "the roofwatch authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
    "sphinx_llms_txt",
]
html_theme = "furo"
html_title = "roofwatch"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["doors.css"]
# the dashboard's palette, in shades that are readable as text
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#B84A00",
        "color-brand-content": "#0063A0",
        "color-brand-visited": "#0063A0",
    },
    "dark_css_variables": {
        "color-brand-primary": "#FF9A57",
        "color-brand-content": "#6CB8F0",
        "color-brand-visited": "#6CB8F0",
    },
}
html_sourcelink_suffix = ""  # keeps a Markdown copy of each page under _sources/
exclude_patterns = ["_build", "README.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False
linkcheck_ignore = [
    r"https://roofwatch\.example",
    r"https://github\.com/roofwatch/roofwatch/",
    r"https://roofwatch\.github\.io/",
]
llms_txt_summary = (
    "Finds the commit that made a GPU kernel slower, by how much, how far it is "
    "from the limit, and why."
)


def setup(app: Sphinx) -> None:
    from reference_pages import write_pages

    app.connect("builder-inited", lambda _: write_pages(DOCS / "reference"))
