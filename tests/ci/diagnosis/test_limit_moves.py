"""What binds what got slower: told from the records of both ends."""

from roofwatch.ci.diagnosis.finding import Limit
from roofwatch.ci.diagnosis.limit_moves import limit_moves
from tests.ci.ailments import AILMENTS, NORM

SUBJECT = (NORM, "triton")


def test_the_limit_of_both_ends_is_named_and_what_the_head_alone_shows() -> None:
    (move,) = limit_moves(AILMENTS["memory, near the roof"](), AILMENTS["latency, few warps"](), [SUBJECT])

    assert (move.base, move.head) == (Limit.MEMORY, Limit.LATENCY)
    assert str(move.headline).startswith("400 µs: neither memory nor arithmetic is busy")
    assert move.news
    assert all(": " in str(news) for news in move.news)


def test_what_was_there_before_is_no_news() -> None:
    record = AILMENTS["spills"]()

    (move,) = limit_moves(record, record, [SUBJECT])

    assert (move.base, move.news) == (move.head, ())


def test_of_what_nothing_is_known_nothing_is_told() -> None:
    record = AILMENTS["nothing is known"]()

    assert limit_moves(record, record, [SUBJECT]) == ()
