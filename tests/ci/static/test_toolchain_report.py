from roofwatch.ci.static.toolchain import Build, judge_upgrades, judge_whole_way
from roofwatch.ci.static.toolchain_report import audit_to_markdown
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from tests.builders import make_static_facts

COMMAND = "roofwatch static audit --triton 3.6.0 --triton 3.7.0"


def make_report(*sides: tuple[StaticFacts, ...]) -> str:
    builds = [Build(f"3.{6 + index}.0", {"torch": "2.13.0"}, facts) for index, facts in enumerate(sides)]
    return audit_to_markdown(
        builds, judge_upgrades(builds), judge_whole_way(builds), command=COMMAND, made_on="2026-01-02"
    )


def test_a_report_says_how_when_and_with_what_it_was_made() -> None:
    report = make_report((make_static_facts(),), (make_static_facts(),))

    assert "Made on 2026-01-02 by" in report
    assert f"```sh\n{COMMAND}\n```" in report
    assert "| `3.6.0` | `2.13.0` | 1 | 0 |" in report


def test_what_got_worse_is_told_once_with_all_its_targets_and_numbers() -> None:
    before = tuple(make_static_facts(target=target) for target in ("sm_80", "sm_90"))
    after = tuple(make_static_facts(target=target, local_bytes=64, code="spills") for target in ("sm_80", "sm_90"))

    report = make_report(before, after)

    assert "**Worse (2)**" in report
    (row,) = [line for line in report.splitlines() if line.startswith("| `_rms_norm_kernel`")]
    assert "`sm_80` `sm_90`" in row
    assert "0 B → 64 B" in row


def test_nothing_worse_is_said_in_words() -> None:
    report = make_report((make_static_facts(),), (make_static_facts(),))

    assert "**Worse:** none." in report
    assert "Everything compiled under every version" in report


def test_a_compiler_s_message_is_quoted_and_cut() -> None:
    failed = make_static_facts(outcome=Outcome.COMPILE_ERROR, message="error: `x` | " + "y" * 2_000)

    report = make_report((make_static_facts(),), (failed,))

    (row,) = [line for line in report.partition("What did not compile")[2].splitlines() if "3.7.0" in line]
    assert "3.7.0: `sm_90`" in row
    assert "compile_error: `error: 'x' ¦ yyy" in row
    assert len(row) < 500


def test_a_long_table_is_folded() -> None:
    names = [f"kernel_{index}" for index in range(40)]
    before = tuple(make_static_facts(function=name) for name in names)
    after = tuple(make_static_facts(function=name, local_bytes=8, code="new") for name in names)

    report = make_report(before, after)

    assert "<details><summary>Worse (40)</summary>" in report


def test_three_versions_get_the_whole_way_too() -> None:
    sides = [(make_static_facts(code=code),) for code in ("first", "second", "third")]

    report = make_report(*sides)

    assert "## 3.6.0 → 3.7.0" in report
    assert "## The whole way, 3.6.0 → 3.8.0" in report
