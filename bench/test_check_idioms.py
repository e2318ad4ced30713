import ast

import pytest

from bench.check_idioms import NOT_YET_CLEAN, ROOT, problems_of


def advice(source: str) -> list[str]:
    return [problem.advice.partition(":")[0] for problem in problems_of(ast.parse(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("f(*(a, b), c)", "literal splat"),
        ("x = a if b else c if d else e", "nested ternary"),
        ("x = [[y for y in z] for z in w]", "comprehension in a comprehension"),
        ("x = [y for z in w for y in z if y]", "comprehension with three clauses"),
        ("if (a := f()) and (b := g()): pass", "two walruses in an expression"),
        ("for one in many: pass", "name `one`"),
        ("def f(found): pass", "name `found`"),
        ("try: pass\nexcept OSError as what: pass", "name `what`"),
    ],
)
def test_a_packed_idiom_is_refused(source: str, expected: str) -> None:
    assert advice(source) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "f(*values, c)",
        "x = a if b else c",
        "x = [y for y in z if y]",
        "x = [y for z in w for y in z]",
        "if a := f():\n    b = (c := g())",
        "for sample_ns in samples_ns: record.given = sample_ns",
    ],
)
def test_unpacked_code_passes(source: str) -> None:
    assert advice(source) == []


def test_every_folder_that_is_not_yet_clean_exists() -> None:
    assert [prefix for prefix in NOT_YET_CLEAN if not (ROOT / prefix).exists()] == []
