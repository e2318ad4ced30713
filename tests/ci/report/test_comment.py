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

from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.markdown import code
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.ci.verdicts import exit_code
from tests.ci.situations import SITUATIONS

GOLDEN = Path(__file__).parent / "golden"


EXIT_CODES = {
    "all_well": 0,
    "regression": 1,
    "improvement": 0,
    "mixed": 1,
    "incorrect": 1,
    "crash": 1,
    "no_base_cases": 0,
    "new_beside_a_change": 0,
    "removed": 2,
    "skipped": 1,
    "not_comparable": 2,
    "not_paired": 2,
    "inconclusive": 2,
    "throttled": 2,
    "autotuner_chose_otherwise": 1,
    "static_spill": 1,
    "static_sentences": 1,
    "static_toolchain": 1,
    "hostile_names": 1,
    "huge": 1,
}


@cache
def comment(situation: str) -> str:
    return to_markdown(judge_pull_request(*SITUATIONS[situation]()))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_comment_is_the_golden_one(situation: str) -> None:
    written = comment(situation)

    path = GOLDEN / f"{situation}.md"
    if os.environ.get("ROOFWATCH_UPDATE_GOLDEN"):
        path.write_text(written)
    assert written == path.read_text()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_gate_and_the_comment_agree(situation: str) -> None:
    status = exit_code(judge_pull_request(*SITUATIONS[situation]()).verdict)

    assert status == EXIT_CODES[situation]
    title = {0: r"nothing changed|improved", 1: "regressed", 2: "inconclusive"}[status]
    assert re.search(rf"roofwatch: ({title})", comment(situation))


def test_hostile_text_stays_in_code_spans() -> None:
    written = re.sub(r"\[\w+\]\(https://roofwatch\.github\.io/roofwatch/[\w/.#-]+\)", "", comment("hostile_names"))
    outside = re.sub(r"`[^`\n]*`", "", written)

    for trace in ("@", "#1", "evil", "script", "](", "&", "</td>", "\u202e"):
        assert trace not in outside
    assert outside.count("<details>") == outside.count("</details>")


def test_a_cut_comment_keeps_the_worst_rows_and_counts_the_others() -> None:
    written = comment("huge")

    rows = [line for line in written.splitlines() if line.startswith("| **regressed**")]
    cut = sum(int(count) for count in re.findall(r"_(\d+) more rows? cut", written))
    assert rows[0].split("`")[1].startswith("rms_norm/n_rows=4999,")
    assert len(rows) + cut >= 5_300
    assert written.count("<details>") == written.count("</details>")


@given(text=st.text(max_size=300))
def test_untrusted_text_never_leaves_its_code_span(text: str) -> None:
    span = code(text)

    assert re.fullmatch(r"`[^`|\r\n]+`", span)
    assert len(span) <= 162
    assert span.isprintable()
