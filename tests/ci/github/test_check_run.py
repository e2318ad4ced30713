import pytest

from roofwatch.ci.gate import exit_code
from roofwatch.ci.github.check_run import Conclusion, concluded, not_measured
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from tests.ci.situations import SITUATIONS

CONCLUSIONS = {0: Conclusion.SUCCESS, 1: Conclusion.FAILURE, 2: Conclusion.NEUTRAL}


@pytest.mark.parametrize("situation", sorted(SITUATIONS.keys() - {"huge"}))
def test_the_check_run_fails_where_the_gate_does_and_is_neutral_where_it_cannot_tell(situation: str) -> None:
    judgement = judge_pull_request(*SITUATIONS[situation]())

    check = concluded(judgement, to_markdown(judgement))

    assert check.conclusion is CONCLUSIONS[exit_code(judgement)]
    assert len(check.title) <= 200
    assert check.title.isprintable()


@pytest.mark.parametrize(
    ("situation", "title"),
    [
        ("regression", "regressed: 2 regressed, 1 unchanged"),
        ("not_paired", "could not tell: not measured in one job (1 of 1)"),
        ("not_comparable", "could not tell: the records, or their times, are not comparable"),
        ("inconclusive", "could not tell: the noise reaches over the threshold; more blocks may decide (1 of 2)"),
        ("improvement", "improved: 1 improved"),
        ("removed", "could not tell: in the base only (1 of 3)"),
    ],
)
def test_the_title_says_what_and_why(situation: str, title: str) -> None:
    judgement = judge_pull_request(*SITUATIONS[situation]())

    assert concluded(judgement, "").title == title


def test_a_neutral_one_begins_with_what_to_do() -> None:
    judgement = judge_pull_request(*SITUATIONS["not_paired"]())

    assert concluded(judgement, "the rest").summary.startswith("Next: measure base and head as a pair, in one job.\n\n")


def test_a_reason_that_quotes_others_is_kept_in_code() -> None:
    check = not_measured("no record in `@everyone`\n# Merged!")

    assert check.conclusion is Conclusion.NEUTRAL
    assert check.summary == "Nothing was compared: `no record in '@everyone' # Merged!`."
