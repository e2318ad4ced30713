"""HTML pages that need no server, such as the pull-request report."""

import html
import math
import re
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from markdown_it import MarkdownIt

from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import on_one_line
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.model.verdict import Verdict

_MAX_CHANGES = 60
_MAX_LABEL = 90
_CHANGE_PX = 22
_MAX_COMMENT_BYTES = 10**7
"""A page has no limit on its length, but a browser does."""
_OURS = re.compile(
    r"<br>|</?details>|<summary>[^<>]*</summary>|<details><summary>[^<>]*</summary>|\s+"
)
_COLOURS = {Verdict.REGRESSED: "#c62828", Verdict.IMPROVED: "#2e7d32"}
_OTHER_COLOUR = "#757575"
# the page loads nothing, so a hostile name cannot send anything anywhere
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';
 img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 1rem auto;
 padding: 0 1rem }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
td, th {{ border: 1px solid #ccc; padding: .2rem .6rem; text-align: left }}
code {{ background: #f2f2f2; padding: 0 .2rem }}
</style></head><body>
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
    """Write a page of Markdown, in which HTML is shown as text, and perhaps a figure of Plotly."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    # mypy does not know the signature of a rule
    rules: Any = {"html_block": _ours_or_text, "html_inline": _ours_or_text}
    for name, rule in rules.items():
        markdown.add_render_rule(name, rule)
    return _PAGE.format(
        title=html.escape(on_one_line(f"roofwatch: {title}")),
        body=markdown.render(text),
        figure=figure,
    )


def _ours_or_text(_renderer: Any, tokens: Sequence[Any], position: int, *_: Any) -> str:
    """Keep the comment's own folds; anything else that looks like HTML is text."""
    content: str = tokens[position].content
    if all(map(_OURS.fullmatch, content.splitlines())):
        return content
    return html.escape(content)


def _changes(cases: Sequence[Change[CaseEvidence]]) -> str:
    """Relative change of each timed case with its interval, the largest on top; nothing without
    comparisons.
    """
    timed = [
        case
        for case in cases
        if case.evidence.comparison is not None
        and math.isfinite(case.evidence.comparison.log_interval[0])
    ]
    timed = sorted(timed, key=_size, reverse=True)[:_MAX_CHANGES]
    if not timed:
        return ""
    figure = go.Figure()
    for verdict in Verdict:
        cases_of_verdict = [case for case in timed if case.verdict is verdict]
        changes = [
            case.evidence.comparison
            for case in cases_of_verdict
            if case.evidence.comparison is not None
        ]
        if not cases_of_verdict:
            continue
        figure.add_scatter(
            name=verdict.value,
            mode="markers",
            x=[change.relative_change for change in changes],
            y=[_label(case) for case in cases_of_verdict],
            error_x={
                "array": [
                    change.relative_interval[1] - change.relative_change for change in changes
                ],
                "arrayminus": [
                    change.relative_change - change.relative_interval[0] for change in changes
                ],
            },
            marker={"color": _COLOURS.get(verdict, _OTHER_COLOUR), "size": 9},
        )
    figure.update_layout(
        title="Change of the time with its 95 % interval",
        height=220 + _CHANGE_PX * len(timed),
        template="plotly_white",
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
        xaxis={"tickformat": "+.0%", "zeroline": True, "zerolinecolor": "#999"},
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "categoryarray": [_label(case) for case in timed],
        },
    )
    text: str = figure.to_html(full_html=False, include_plotlyjs=True)
    return text


def _size(case: Change[CaseEvidence]) -> float:
    if case.evidence.comparison is None:
        return 0.0
    return abs(case.evidence.comparison.log_ratio)


def _label(case: Change[CaseEvidence]) -> str:
    # Plotly renders some HTML in labels
    text = on_one_line(f"{case.case_id} {case.implementation}")
    return text.translate(str.maketrans("<>&", "‹›+"))[:_MAX_LABEL]
