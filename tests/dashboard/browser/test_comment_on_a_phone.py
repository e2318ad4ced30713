"""Pull-request comments in Chromium at 390 pixels, with the table styles of GitHub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page

from tests.dashboard.browsing import new_context

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

GOLDEN = Path(__file__).parents[2] / "ci" / "report" / "golden"
COMMENTS = sorted(file.stem for file in GOLDEN.glob("*.md"))
# of primer/css, as GitHub shows a comment
STYLE = """
body { margin: 0; padding: 0 16px }
.markdown-body { border: 1px solid; padding: 16px; overflow-wrap: break-word; font-size: 14px;
    line-height: 1.5; font-family: "Noto Sans", Helvetica, Arial, sans-serif }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-spacing: 0;
    border-collapse: collapse; font-size: 14px }
th, td { padding: 6px 13px; border: 1px solid }
code { padding: .2em .4em; font-size: 85%; white-space: break-spaces;
    font-family: "Liberation Mono", monospace }
"""
WIDTHS = """() => [...document.querySelectorAll('table')]
    .filter(table => !table.closest('details'))
    .map(table => [table.rows[0].innerText, table.scrollWidth - table.clientWidth])"""


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    with new_context(browser) as context:
        page = context.new_page()
        page.set_viewport_size({"width": 390, "height": 844})
        yield page


@pytest.mark.parametrize("name", COMMENTS)
def test_no_column_of_an_open_table_is_cut(phone: Page, name: str) -> None:
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    body = markdown.render((GOLDEN / f"{name}.md").read_text())

    phone.set_content(f"<style>{STYLE}</style><div class=markdown-body>{body}</div>")

    assert [header for header, hidden_px in phone.evaluate(WIDTHS) if hidden_px > 0] == []
