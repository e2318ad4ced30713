"""The comment, one golden file per situation.

After a meant change: `ROOFWATCH_UPDATE_GOLDEN=1 python -m pytest tests/ci/report/test_comment.py`, and read the
difference.
"""

import os
import re
import statistics
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.ab.compare import detectable_change
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
    outside = re.sub(r"`[^`\n]*`", "", comment("hostile_names"))

    for trace in ("@", "#1", "evil", "script", "](", "&", "</td>", "\u202e"):
        assert trace not in outside
    assert outside.count("<details>") == outside.count("</details>")


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    for situation in SITUATIONS:
        columns = 0
        for line in comment(situation).splitlines():
            is_row = line.startswith("| ")
            columns = (columns or line.count("|")) if is_row else 0
            assert not is_row or line.count("|") == columns, line


def test_a_cut_comment_keeps_the_worst_rows_and_counts_the_others() -> None:
    written = comment("huge")

    rows = [line for line in written.splitlines() if line.startswith("| **regressed**")]
    cut = sum(int(count) for count in re.findall(r"_(\d+) more rows? cut", written))
    assert rows[0].split("`")[1].startswith("rms_norm/n_rows=4999,")
    assert len(rows) + cut >= 5_300
    assert written.count("<details>") == written.count("</details>")


def test_the_comment_has_the_detectable_slowdown() -> None:
    judged = judge_pull_request(*SITUATIONS["regression"]())
    changes = [
        detectable_change(case.comparison.block_deviation, case.comparison.block_count)
        for case in judged.cases
        if case.comparison is not None and case.comparison.block_deviation is not None
    ]

    assert len(changes) == 3
    assert judged.detectable_change == statistics.median(changes)
    assert f"A slowdown of {judged.detectable_change:.1%} is found with 80 % probability." in to_markdown(judged)


@given(text=st.text(max_size=300))
def test_untrusted_text_never_leaves_its_code_span(text: str) -> None:
    span = code(text)

    assert re.fullmatch(r"`[^`|\r\n]+`", span)
    assert len(span) <= 162
    assert span.isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("softmax/n=1", "`softmax/n=1`"),
        ("", "` `"),
        ("a `b` | c", "`a 'b' ¦ c`"),
        ("two\nlines\tand tabs", "`two lines and tabs`"),
        ("\u202eesrever\x1b[31m\u200b", "`�esrever�[31m�`"),
    ],
)
def test_characters_that_end_a_span_or_a_cell_are_replaced(text: str, expected: str) -> None:
    assert code(text) == expected
