"""The comment, one golden file per situation.

After an intended change: `ROOFWATCH_UPDATE_GOLDEN=1 python -m pytest tests/ci/report/test_comment.py`, and read the
difference.
"""

import os
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.report.comment import Links, to_markdown
from roofwatch.ci.report.markdown import code
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.ci.verdicts import exit_code
from tests.ci.situations import SITUATIONS

GOLDEN = Path(__file__).parent / "golden"
LINKS = Links(
    run="https://github.example/example/project/actions/runs/10",
    dashboard="https://dash.example/",
    source="https://github.example/example/project/blob/5afee0de",
)


@cache
def comment(situation: str) -> str:
    return to_markdown(judge_pull_request(*SITUATIONS[situation]()), links=LINKS)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_comment_is_the_golden_one_and_agrees_with_the_exit_status(situation: str) -> None:
    written = comment(situation)

    path = GOLDEN / f"{situation}.md"
    if os.environ.get("ROOFWATCH_UPDATE_GOLDEN"):
        path.write_text(written)
    assert written == path.read_text()
    status = exit_code(judge_pull_request(*SITUATIONS[situation]()).verdict)
    assert re.match(rf"(### |\*\*){'✅❌⚪'[status]} ", written)


def test_hostile_text_stays_in_code_spans() -> None:
    outside = re.sub(r"`[^`\n]*`", "", comment("hostile_names"))
    outside = re.sub(r"\[[\w ]*\]\(https://(roofwatch\.github\.io|\w+\.example)/[\w/.#%?=&+-]+\)", "", outside)

    for trace in ("@", "#1", "evil", "script", "](", "&", "</td>", "\u202e"):
        assert trace not in outside
    assert outside.count("<details>") == outside.count("</details>")


def test_a_cut_comment_keeps_the_worst_rows_and_counts_the_others() -> None:
    written = comment("huge")

    rows = [line for line in written.splitlines() if "dimension_a" in line]
    cut = sum(int(count) for count in re.findall(r"_(\d+) more rows? cut", written))
    assert "n_rows=4999 " in rows[0]
    assert "and 4999 more cases, median +35%" in rows[0]
    assert len(rows) - 1 + cut >= 5_000
    assert written.count("<details>") == written.count("</details>")


@given(text=st.text(max_size=300))
def test_untrusted_text_never_leaves_its_code_span(text: str) -> None:
    span = code(text)

    assert re.fullmatch(r"`[^`|\r\n]+`", span)
    assert len(span) <= 162
    assert span.isprintable()
