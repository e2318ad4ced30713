"""The page about an upgrade of Triton."""

from roofwatch.ci.report.upgrade_page import UpgradeStep, to_markdown
from roofwatch.ci.static.comparison import judge_static
from roofwatch.model.machine import Outcome
from tests.builders import make_static_facts


def lines_of_page() -> list[str]:
    base = [
        make_static_facts(function="_spills"),
        make_static_facts(function="_lost"),
        make_static_facts(function="_same"),
        make_static_facts(function="_other", target="gfx942"),
    ]
    head = [
        make_static_facts(function="_spills", code="b", local_bytes=456),
        make_static_facts(function="_lost", outcome=Outcome.COMPILE_ERROR, message="a | b"),
        make_static_facts(function="_same"),
        make_static_facts(function="_other", target="gfx942", code="c"),
    ]
    step = UpgradeStep("bench.py", "triton 3.6.0", "triton 3.7.1", judge_static(base, head))
    page = to_markdown([step], command="roofwatch upgrade-report", date="2026-01-01")
    return page.splitlines()


def test_the_page_counts_by_target() -> None:
    lines = lines_of_page()

    assert "## bench.py: triton 3.6.0 to triton 3.7.1" in lines
    assert "| sm_90 | 1 | 1 | 0 | 0 | 0 | 1 |" in lines
    assert "| gfx942 | 0 | 0 | 0 | 0 | 1 | 0 |" in lines


def test_the_page_lists_what_is_worse() -> None:
    lines = lines_of_page()

    assert any(
        "_spills | regressed | sm_90 | 1 | memory per thread 0 B → 456 B" in row for row in lines
    )
    # a message cannot end a cell
    assert any("_lost" in row and "a ¦ b" in row for row in lines)
    assert "### Better" not in lines


def test_functions_with_the_same_change_share_a_line() -> None:
    functions = [f"_spills[BLOCK={block}]" for block in (64, 128)]
    cases = [f"norm/n={n}/float32/fwd" for n in (8, 16)]
    base = [make_static_facts(case, function=name) for case in cases for name in functions]
    head = [facts.model_copy(update={"code_hash": "f" * 64, "local_bytes": 456}) for facts in base]
    step = UpgradeStep("bench.py", "triton 3.6.0", "triton 3.7.1", judge_static(base, head))

    page = to_markdown([step], command="roofwatch upgrade-report", date="2026-01-01")

    assert page.count("_spills") == 1
    assert "| norm | _spills | regressed | sm_90 | 4 |" in page
