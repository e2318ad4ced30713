"""The search in the header, and the links that it finds."""

from html import escape
from urllib.parse import urlencode, urljoin

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard import data
from roofwatch.dashboard.wording import shortened
from roofwatch.db.queries import questions

_KEY = "search"
_MAX_LENGTH = 200
_FOCUS_JS = f"""
export default () => {{
  const focus = event => {{
    if (event.key !== "/" || event.target.closest("input, textarea, [contenteditable]")) return;
    event.preventDefault();
    document.querySelector(".st-key-{_KEY} input")?.focus();
  }};
  document.addEventListener("keydown", focus);
  return () => document.removeEventListener("keydown", focus);
}}
"""
_focus_on_slash = st.components.v2.component("focus_search", js=_FOCUS_JS)


def ask_for_text(place: DeltaGenerator) -> str:
    """Show the field, which the key `/` focuses."""
    with place.container(key="search-field", width=190, gap=None):
        _focus_on_slash(key="focus-search", height=1)
        text = st.text_input("Search", key=_KEY, type="search", placeholder="press /")
    return (text or "").strip()[:_MAX_LENGTH]


def show_found(project: str, text: str) -> None:
    """List kernels, cases and commits of the whole project, whatever the filters, as links to their views."""
    found = data.ask(questions.search, project, text)
    regressed = {one.commit.sha for one in data.list_regressions(project)}

    def link(label: str, view: str, **choices: str) -> str:
        # a new page has no filters
        address = f"{urljoin(st.context.url or '/', view)}?{urlencode({'project': project, **choices})}"
        return f'<a href="{escape(address)}" target="_self">{label}</a>'

    rows = [
        ("kernel", name, [link("Trend", "trends", kernel=name), link("Roofline", "kernel", kernel=name)])
        for name in found.kernels
    ]
    for name in found.cases:
        kernel = name.partition("/")[0]
        rows.append(("case", name, [link("Trend", "trends", kernel=kernel, case=name)]))
    for one in found.commits:
        sha = one.commit.sha
        links = [link("Run", "run", run=one.run_id), link("Roofline", "kernel", commit=sha)]
        if sha in regressed:
            links.insert(0, link("Regression", "regression", commit=sha))
        rows.append(("commit", f"{one.commit.short_sha} {one.commit.subject}", links))
    with st.container(border=True, key="found"):
        if not rows:
            st.text("No kernel, case or commit matches. A pull request is found by its number in a commit's subject.")
        lines = (
            f"<tr><td>{kind}</td><td>{escape(shortened(name))}</td><td>{' · '.join(links)}</td></tr>"
            for kind, name, links in rows
        )
        st.html(f"<table class=rw-found>{''.join(lines)}</table>")
