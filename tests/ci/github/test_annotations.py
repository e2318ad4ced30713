"""What is said beside the source, and that nobody can make it say something elsewhere."""

from typing import Any

import pytest
from pydantic import ValidationError

from roofwatch.ci.github.annotations import MAX_ANNOTATIONS, Annotation, Level, annotations_of
from roofwatch.ci.github.check_run import concluded
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.record.record import RunRecord, SourceLine
from tests.builders import CASE_ID, make_static_facts
from tests.ci.situations import HOSTILE, SITUATIONS, head_timed
from tests.ci.values import SOFTMAX, make_records, make_timed


def make_source_line(**fields: Any) -> SourceLine:
    defaults: dict[str, Any] = {
        "kernel": "rms_norm",
        "implementation": "eager",
        "function": "rms_norm_torch",
        "file": "kernels/rms_norm.py",
        "line": 12,
    }
    return SourceLine(**defaults | fields)


def annotated(records: tuple[RunRecord, RunRecord], *lines: SourceLine) -> tuple[Annotation, ...]:
    base, head = records
    return annotations_of(judge_pull_request(base, head.model_copy(update={"source_lines": lines})))


def test_a_slowdown_is_told_beside_what_is_called() -> None:
    (told,) = annotated(SITUATIONS["regression"](), make_source_line())

    assert (told.file, told.line, told.level) == ("kernels/rms_norm.py", 12, Level.FAILURE)
    assert told.title == "rms_norm_torch: 1 regressed"
    assert told.message.startswith(f"{CASE_ID} eager: time +40.")


def test_it_stands_beside_the_only_function_that_is_compiled_for_it() -> None:
    kernel = make_source_line(function="_rms_norm_kernel", line=3, is_jitted=True)

    (one,) = annotated(SITUATIONS["regression"](), make_source_line(), kernel)
    (of_several,) = annotated(
        SITUATIONS["regression"](), make_source_line(), kernel, make_source_line(function="_b", line=5, is_jitted=True)
    )

    assert (one.line, of_several.line) == (3, 12)


def test_worse_machine_code_is_told_beside_the_function_that_it_was_made_from() -> None:
    function = make_static_facts().function
    lines = [
        make_source_line(implementation="triton"),
        make_source_line(implementation="triton", function="_other", line=30, is_jitted=True),
        make_source_line(implementation="triton", function=function, line=20, is_jitted=True),
    ]

    (told,) = annotated(SITUATIONS["static_toolchain"](), *lines)

    assert (told.line, told.title) == (20, f"{function}: 1 regressed")
    assert "for sm_90: " in told.message


@pytest.mark.slow
def test_many_cases_of_one_function_are_one_annotation_with_the_worst_first() -> None:
    (told,) = annotated(SITUATIONS["huge"](), make_source_line())

    lines = told.message.splitlines()
    assert lines[0].startswith("rms_norm/n_rows=4999,")
    assert lines[10:] == ["and 4990 more"]


def test_regressions_come_before_improvements_and_not_all_are_told() -> None:
    ids = [f"kernel_{number}/n=1/float32/fwd" for number in range(MAX_ANNOTATIONS + 1)]
    base = [make_timed(case_id) for case_id in [*ids, SOFTMAX]]
    head = [*(head_timed(case_id, median_ns=0.7e6) for case_id in ids), head_timed(SOFTMAX, median_ns=1.4e6)]
    lines = [make_source_line(kernel=case_id.split("/")[0], line=number + 1) for number, case_id in enumerate(ids)]

    told = annotated(make_records(base, head), *lines, make_source_line(kernel="softmax", line=999))

    assert len(told) == MAX_ANNOTATIONS
    assert (told[0].line, told[0].level) == (999, Level.FAILURE)
    assert {each.level for each in told[1:]} == {Level.NOTICE}


def test_without_lines_and_where_nothing_moved_there_is_none() -> None:
    assert annotated(SITUATIONS["regression"]()) == ()
    assert annotated(SITUATIONS["all_well"](), make_source_line()) == ()


def test_the_check_run_carries_them() -> None:
    base, head = SITUATIONS["regression"]()
    judgement = judge_pull_request(base, head.model_copy(update={"source_lines": (make_source_line(),)}))

    assert concluded(judgement, "").annotations == annotations_of(judgement) != ()


def test_names_of_others_are_on_one_line_and_show_what_they_hide() -> None:
    line = make_source_line(function=f"f\n\u202e{HOSTILE}")

    (told,) = annotated(make_records([make_timed()], [head_timed(median_ns=1.4e6)]), line)

    assert told.title.isprintable()
    assert len(told.title) <= 255


@pytest.mark.parametrize(
    "file",
    [
        "/etc/passwd",
        "../outside.py",
        "kernels/../../outside.py",
        "kernels//a.py",
        "./a.py",
        "kernels\\a.py",
        "C:/a.py",
        "a\n.py",
        "a\u202e.py",
        ".git/config",
        "",
        "a" * 501,
    ],
)
def test_a_path_that_may_lead_elsewhere_makes_a_record_invalid(file: str) -> None:
    with pytest.raises(ValidationError):
        make_source_line(file=file)
