"""The report as one HTML page, in a browser without network."""

import re
from pathlib import Path
from typing import Any

import pytest

from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.reporting.pages import report_page
from tests.ci.situations import SITUATIONS
from tests.dashboard.browsing import launched


def page_of(situation: str) -> str:
    return report_page(judge_pull_request(*SITUATIONS[situation]()))


@pytest.mark.parametrize("situation", ["hostile_names", "one_of_200_slower"])
def test_only_our_own_folds_are_html_of_the_comment(situation: str) -> None:
    comment, _, _ = page_of(situation).partition("<h2>Change of the time")

    assert comment.count("<details>") == comment.count("</details>") > 0
    for trace in ("<script", "<img", "<iframe", 'href="javascript:'):
        assert trace not in comment.lower()


def test_the_figure_has_the_interval_of_each_case() -> None:
    page = page_of("regression")

    assert re.search(r"\+\d+\.\d%, 95 % interval \+\d+\.\d% to \+\d+\.\d%", page)
    assert "◆ regressed" in page


def test_the_page_is_small_for_it_has_no_script() -> None:
    page = page_of("regression")

    assert len(page) < 60_000
    assert "<script" not in page


@pytest.mark.slow
@pytest.mark.parametrize("situation", ["regression", "hostile_names"])
def test_the_page_draws_its_figure_without_a_request(situation: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page_of(situation))
    problems: list[Any] = []
    requested: list[str] = []
    with launched() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda message: problems.append(message.text) if message.type == "error" else None,
        )
        page.on("request", lambda request: requested.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector(".changes .rw-forest")
        texts = page.locator("body").inner_text()

    assert "95 % interval" in texts
    assert (problems, requested) == ([], [file.as_uri()])
