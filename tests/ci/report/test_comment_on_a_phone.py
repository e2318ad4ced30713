"""The comment in a browser as wide as a phone."""

from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser

from tests.ci.report.test_comment import comment
from tests.dashboard.browsing import launched

WIDTH, HEIGHT = 390, 844
"""Of a common phone, in CSS pixels."""
STYLE = """
body { font: 14px/1.5 -apple-system, "Segoe UI", "Noto Sans", sans-serif; margin: 0; padding: 16px }
h3 { font-size: 1.25em; line-height: 1.25; margin: 0 0 16px }
p, ul, table, details { margin: 0 0 16px }
ul { padding-left: 2em }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-collapse: collapse }
th, td { border: 1px solid #d1d9e0; padding: 6px 13px }
code { font: 85% ui-monospace, monospace; white-space: break-spaces; background: #818b981f; padding: .2em .4em }
"""
"""GitHub's rules for tables and code. Source: github-markdown-css 5.8."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as chromium:
        yield chromium


def height_of(browser: Browser, markdown: str) -> int:
    """Height of a comment with its folds closed, in pixels."""
    rendered = MarkdownIt("commonmark", {"html": True, "breaks": True}).enable("table").render(markdown)
    with browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}) as context:
        page = context.new_page()
        page.set_content(f"<!doctype html><style>{STYLE}</style>{rendered}")
        height: int = page.evaluate("document.body.offsetHeight")
    return height


@pytest.mark.slow
@pytest.mark.parametrize(
    ("situation", "screens"),
    [("regression", 1), ("incorrect", 1), ("static_spill", 1.5), ("one_of_200_slower", 1), ("all_200_slower", 2)],
)
def test_a_comment_fits_a_phone(browser: Browser, situation: str, screens: float) -> None:
    assert height_of(browser, comment(situation)) <= screens * HEIGHT
