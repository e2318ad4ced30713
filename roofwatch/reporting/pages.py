"""HTML pages that need no server, such as the pull-request report."""

import html
import math
import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt

from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import on_one_line
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.dashboard.charts.forest import STYLE as FOREST_STYLE
from roofwatch.dashboard.charts.forest import ForestRow, forest_table_html

_MAX_COMMENT_BYTES = 10**7
"""A page has no limit on its length, but a browser does."""
_OURS = re.compile(
    r"<br>|</?details>|<summary>[^<>]*</summary>|<details><summary>[^<>]*</summary>|\s+"
)
# the page loads nothing, so a hostile name cannot send anything anywhere
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline';
 img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 1rem auto;
 padding: 0 1rem }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
td, th {{ border: 1px solid rgba(128, 128, 128, .4); padding: .2rem .6rem; text-align: left }}
code {{ background: rgba(128, 128, 128, .14); padding: 0 .2rem }}
h2, h3 {{ font-size: 1.2rem }}
:root {{ color-scheme: light dark }}
{style}</style></head><body>
{body}
{figure}
</body></html>
"""


def report_page(judgement: PullRequestJudgement) -> str:
    title = f"{judgement.project} {judgement.head.sha[:12]}"
    return page(
        title, to_markdown(judgement, max_bytes=_MAX_COMMENT_BYTES), _changes(judgement.cases)
    )


def page(title: str, text: str, figure: str = "") -> str:
    """Write a page of Markdown, in which HTML is shown as text, and perhaps a figure in HTML."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    # mypy does not know the signature of a rule
    rules: Any = {"html_block": _ours_or_text, "html_inline": _ours_or_text}
    for name, rule in rules.items():
        markdown.add_render_rule(name, rule)
    return _PAGE.format(
        title=html.escape(on_one_line(f"roofwatch: {title}")),
        body=markdown.render(text),
        figure=figure,
        style=FOREST_STYLE,
    )


def _ours_or_text(_renderer: Any, tokens: Sequence[Any], position: int, *_: Any) -> str:
    """Keep the comment's own folds; anything else that looks like HTML is text."""
    content: str = tokens[position].content
    if all(map(_OURS.fullmatch, content.splitlines())):
        return content
    return html.escape(content)


def _changes(cases: Sequence[Change[CaseEvidence]]) -> str:
    """Draw the change of each timed case with its interval; nothing without comparisons."""
    rows: list[tuple[str, ForestRow]] = []
    for case in cases:
        comparison = case.evidence.comparison
        if comparison is None or not math.isfinite(comparison.log_interval[0]):
            continue
        row = ForestRow(comparison.relative_change, comparison.relative_interval, case.verdict)
        rows.append((f"{case.case_id} {case.implementation}", row))
    if not rows:
        return ""
    return f"<h2>Change of the time with its 95 % interval</h2>{forest_table_html(rows)}"
