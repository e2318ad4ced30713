import re

import pytest

from roofwatch.ci.gate import exit_code
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from tests.ci.situations import SITUATIONS

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


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_gate_and_the_comment_say_the_same(situation: str) -> None:
    judgement = judge_pull_request(*SITUATIONS[situation]())

    assert exit_code(judgement) == EXIT_CODES[situation]
    title = {0: r"nothing changed|improved", 1: "regressed", 2: "could not tell"}[exit_code(judgement)]
    assert re.search(rf"roofwatch: ({title})", to_markdown(judgement))
