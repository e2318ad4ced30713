import pytest

from ci.static import facts_in_words, judge_facts, moved_facts
from db.values import Verdict

BASE = {"registers": 64.0, "spilled_registers": 0.0, "local_bytes": 0.0, "shared_bytes": 1024.0, "code_bytes": 4096.0}


@pytest.mark.parametrize("name", ["local_bytes", "spilled_registers"])
def test_more_memory_per_thread_is_a_regression_and_less_an_improvement(name: str) -> None:
    worse = BASE | {name: 8.0}

    assert judge_facts(BASE, worse) is Verdict.REGRESSED
    assert judge_facts(worse, BASE) is Verdict.IMPROVED


@pytest.mark.parametrize("name", ["registers", "shared_bytes", "code_bytes"])
def test_a_resource_alone_is_evidence_and_no_verdict(name: str) -> None:
    assert judge_facts(BASE, BASE | {name: 1e6}) is Verdict.UNCHANGED


def test_where_bytes_and_registers_contradict_each_other_the_bytes_decide() -> None:
    base = BASE | {"local_bytes": 16.0, "spilled_registers": 4.0}
    head = BASE | {"local_bytes": 32.0, "spilled_registers": 2.0}

    assert judge_facts(base, head) is Verdict.REGRESSED


def test_a_fact_that_one_side_does_not_know_has_not_moved() -> None:
    assert moved_facts({"local_bytes": 0.0}, {"spilled_registers": 9.0}) == ()


def test_what_moved_is_told_with_units_the_decisive_first() -> None:
    head = BASE | {"registers": 255.0, "local_bytes": 48.0}

    words = facts_in_words(BASE, head)

    assert words == "local memory per thread 0 B to 48 B, registers per thread 64 to 255"
