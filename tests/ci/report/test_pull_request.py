from typing import Any

import pytest

from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.forges.check_run import concluded
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.comment import summary_line, to_markdown
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.ci.report.titles import headline
from roofwatch.model.claim import CheckPolicy
from roofwatch.model.history import Cause
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Autotuning, CacheState, Measurement, Timer
from roofwatch.model.provenance import LoadedFile, Origin
from roofwatch.model.record import PairMember, RunRecord, Side
from roofwatch.model.results import CodeEstimate, StaticFacts
from roofwatch.model.verdict import Reason, Verdict, exit_code
from roofwatch.tables.comparison import judgement_tables
from tests.builders import (
    CASE_ID,
    make_accuracy,
    make_commit,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_static_facts,
)
from tests.ci.values import PAIR_ID, QUIET, SOFTMAX, make_records, make_timed

INTERPRETED = make_measurement(outcome=Outcome.UNSUPPORTED)


def judge(base: Any, head: Any, **fields: Any) -> PullRequestJudgement:
    return judge_pull_request(*make_records(base, head, **fields))


def only_case(judgement: PullRequestJudgement) -> Change[CaseEvidence]:
    (case,) = judgement.cases
    return case


# --- times


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"timer": Timer.CUDA_EVENT}, "timer perf_counter and cuda_event"),
        ({"cache": CacheState.COLD}, "cache hot and cold"),
        ({"launches_per_sample": 8}, "launches per sample 1 and 8"),
        ({"levels": QUIET[:4]}, "blocks 6 and 4"),
    ],
)
def test_times_that_were_taken_differently_are_not_compared(
    fields: dict[str, Any], detail: str
) -> None:
    case = only_case(judge([make_timed()], [make_timed(**fields)]))

    assert case.verdict is Verdict.INCONCLUSIVE
    assert case.reason is Reason.NOT_COMPARABLE
    assert str(case.detail) == detail
    assert case.evidence.comparison is None


def test_times_of_another_machine_are_refused() -> None:
    judgement = judge(
        [make_timed()],
        [make_timed()],
        head_fields={"environment": make_environment(thread_count=8)},
    )

    assert "their times are not comparable" in str(judgement.refusals[0])
    assert [case.reason for case in judgement.cases] == [Reason.NOT_COMPARABLE]


def test_a_wrong_result_on_another_machine_is_judged() -> None:
    judgement = judge(
        [make_timed(), make_accuracy(SOFTMAX)],
        [make_timed(), make_accuracy(SOFTMAX, outcome=Outcome.INCORRECT)],
        head_fields={"environment": make_environment(thread_count=8)},
    )

    assert [case.reason for case in judgement.cases] == [Reason.NOT_COMPARABLE, Reason.WRONG_RESULT]
    assert exit_code(judgement.verdict) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"project": "another/project"},
            "a record of example/project, the head of another/project",
        ),
        (
            {"pairing": PairMember(pair_id=PAIR_ID, side=Side.BASE)},
            "the records are base and base of their pair",
        ),
    ],
)
def test_records_that_do_not_belong_together_are_refused_whole(
    fields: dict[str, Any], words: str
) -> None:
    judgement = judge(
        [make_timed(), make_static_facts()],
        [make_timed(median_ns=2e6), make_static_facts(code="b", local_bytes=99)],
        head_fields=fields,
    )

    assert words in str(judgement.refusals[0])
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert only_case(judgement).reason is Reason.NOT_COMPARABLE
    assert judgement.static == ()
    assert exit_code(judgement.verdict) == 2


OWN = LoadedFile(module="qk", path="python/qk/__init__.py", origin=Origin.TREE)
FOREIGN = LoadedFile(module="qk", path="site-packages/qk/__init__.py", origin=Origin.INSTALLED)


@pytest.mark.parametrize("side", ["base", "head"])
def test_code_of_another_commit_decides_nothing_whatever_it_did(side: str) -> None:
    fields: dict[str, Any] = {f"{side}_fields": {"provenance": (FOREIGN,)}}
    judgement = judge(
        [make_timed(), make_accuracy(SOFTMAX), make_static_facts()],
        [
            make_timed(median_ns=9e6),
            make_accuracy(SOFTMAX, outcome=Outcome.INCORRECT),
            make_static_facts(code="b", local_bytes=99),
        ],
        **fields,
    )

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert {case.reason for case in judgement.cases} == {Reason.FOREIGN_CODE}
    assert (judgement.static, judgement.secondary_changes) == ((), ())
    text = str(judgement.refusals[0])
    assert f"the {side} loaded qk from the installed packages (site-packages/qk/__init__" in text
    assert "[build] command that installs it into {prefix}" in text
    assert "no result: the measured code is not that of the commit" in str(headline(judgement))


@pytest.mark.parametrize(
    ("is_isolated", "words"),
    [(False, "both sides ran with the head's packages"), (True, "each side ran with its own")],
)
def test_changed_dependencies_are_named(is_isolated: bool, words: str) -> None:
    common = {"provenance": (OWN,), "is_isolated": is_isolated}
    before = {"triton": "==3.6.0", "numpy": ">=2", "old": ""}
    after = {"triton": "==3.7.1", "numpy": ">=2"}
    judgement = judge(
        [make_timed()],
        [make_timed()],
        base_fields={**common, "requirements": before},
        head_fields={**common, "requirements": after},
    )

    assert judgement.verdict is Verdict.UNCHANGED
    for text in (str(judgement.dependencies), to_markdown(judgement)):
        assert "old any → none, triton ==3.6.0 → ==3.7.1" in text
        assert words in text


def test_a_weak_change_among_many_cases_is_inconclusive() -> None:
    # an interval that ends just above the threshold: alone it counts, among forty it does not
    weak = make_timed(median_ns=1.2e6, levels=(1.0, 1.25, 0.95, 1.22, 1.02, 1.15))
    alone = judge([make_timed()], [weak])
    others = [make_timed(SOFTMAX, implementation=f"i{number}") for number in range(40)]
    together = judge([make_timed(), *others], [weak, *others])

    assert only_case(alone).reason is Reason.BEYOND_THRESHOLD
    assert together.cases[0].reason is Reason.MULTIPLICITY
    assert exit_code(together.verdict) == 2


def on_a_gpu(capability: str) -> dict[str, Any]:
    return {
        "environment": make_environment(
            device_kind="cuda", device_name="H200", compute_capability=capability
        )
    }


@pytest.mark.parametrize(
    ("sm_90", "sm_80", "capability", "reason"),
    [
        ("a", "a", "9.0", Reason.SAME_MACHINE_CODE),
        ("a", "b", "9.0", Reason.SAME_MACHINE_CODE),
        ("b", "a", "9.0", Reason.BEYOND_THRESHOLD),
        ("a", "a", "10.0", Reason.SAME_MACHINE_CODE),
        ("a", "b", "10.0", Reason.BEYOND_THRESHOLD),  # nothing was compiled for this device
    ],
)
def test_a_change_with_identical_machine_code_is_inconclusive(
    sm_90: str, sm_80: str, capability: str, reason: Reason
) -> None:
    def facts(sm_90: str, sm_80: str) -> list[StaticFacts]:
        return [make_static_facts(code=sm_90), make_static_facts(target="sm_80", code=sm_80)]

    judgement = judge(
        [make_timed(implementation="triton"), *facts("a", "a")],
        [make_timed(implementation="triton", median_ns=1.3e6), *facts(sm_90, sm_80)],
        base_fields=on_a_gpu(capability),
        head_fields=on_a_gpu(capability),
    )

    assert only_case(judgement).reason is reason


@pytest.mark.parametrize(
    ("timer", "reason"),
    [
        (Timer.CUDA_EVENT, Reason.HOST_BOUND),
        (Timer.CUPTI, Reason.BEYOND_THRESHOLD),
        (Timer.CUDA_GRAPH, Reason.BEYOND_THRESHOLD),
    ],
)
def test_host_bound_times_are_inconclusive(timer: Timer, reason: Reason) -> None:
    def timed(median_ns: float) -> Measurement:
        measured = make_timed(median_ns=median_ns, timer=timer, cache=CacheState.COLD)
        return measured.model_copy(
            update={
                "blocks": tuple(
                    block.model_copy(update={"host_ns": 0.9e6}) for block in measured.blocks
                )
            }
        )

    case = only_case(judge([timed(1e6)], [timed(1.3e6)]))

    assert case.reason is reason
    assert (case.verdict is Verdict.INCONCLUSIVE) == (reason is Reason.HOST_BOUND)


# --- results


@pytest.mark.parametrize(
    ("base", "head", "verdict", "reason"),
    [
        (Outcome.OK, Outcome.INCORRECT, Verdict.REGRESSED, Reason.WRONG_RESULT),
        (Outcome.OK, Outcome.CRASHED, Verdict.REGRESSED, Reason.FAILED),
        (Outcome.OK, Outcome.UNSUPPORTED, Verdict.REGRESSED, Reason.FAILED),
        (Outcome.UNSUPPORTED, Outcome.CRASHED, Verdict.REGRESSED, Reason.FAILED),
        (Outcome.INCORRECT, Outcome.INCORRECT, Verdict.UNCHANGED, Reason.ALREADY_FAILING),
        (Outcome.CRASHED, Outcome.INCORRECT, Verdict.UNCHANGED, Reason.ALREADY_FAILING),
        (Outcome.INCORRECT, Outcome.OK, Verdict.IMPROVED, Reason.FIXED),
        (Outcome.UNSUPPORTED, Outcome.UNSUPPORTED, Verdict.UNCHANGED, Reason.SAME_CODE),
        (Outcome.UNSUPPORTED, Outcome.OK, Verdict.UNCHANGED, Reason.SAME_CODE),
    ],
)
def test_outcomes_decide_before_times(
    base: Outcome, head: Outcome, verdict: Verdict, reason: Reason
) -> None:
    case = only_case(judge([make_measurement(outcome=base)], [make_measurement(outcome=head)]))

    assert (case.verdict, case.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("base", "head", "reason", "exit_status"),
    [
        # a wrong result counts however fast it is
        (
            [make_timed(), make_accuracy()],
            [make_timed(median_ns=1e5), make_accuracy(outcome=Outcome.INCORRECT)],
            Reason.WRONG_RESULT,
            1,
        ),
        # Triton on a CPU
        ([INTERPRETED, make_accuracy()], [INTERPRETED, make_accuracy()], Reason.SAME_CODE, 0),
        # what is missing at the head is no pass
        ([make_timed(), make_accuracy()], [make_timed()], Reason.NOT_COMPARABLE, 2),
        ([make_timed(), make_accuracy()], [make_accuracy()], Reason.REMOVED_CASE, 2),
        ([], [make_timed()], Reason.NEW_CASE, 0),
        # an error within the tolerance decides nothing
        (
            [make_timed(), make_accuracy(rmse_ratio=1e-7)],
            [make_timed(), make_accuracy(rmse_ratio=8e-6)],
            Reason.WITHIN_THRESHOLD,
            0,
        ),
    ],
)
def test_a_case_is_judged_by_what_both_sides_have(
    base: Any, head: Any, reason: Reason, exit_status: int
) -> None:
    judgement = judge(base, head)

    assert only_case(judgement).reason is reason
    assert exit_code(judgement.verdict) == exit_status


def test_a_changed_work_tree_is_not_called_the_same_commit() -> None:
    commit = make_commit(0)

    def notes(**head: Any) -> str:
        judgement = judge(
            [make_timed()], [make_timed()], head_fields={"commit": commit.model_copy(update=head)}
        )
        return " ".join(map(str, judgement.notes))

    assert "the same commit" in notes()
    assert "the same commit" not in notes(is_dirty=True)


PINNED = Autotuning(function="k", chosen={"BLOCK": 64}, is_pinned=True)
FREE = Autotuning(function="k", chosen={"BLOCK": 32})


def notes_on_pinned(base: Autotuning, head: Autotuning) -> list[str]:
    records = [
        make_record(measurements=(make_measurement(autotuning=(choice,)),))
        for choice in (base, head)
    ]
    judged = judge_pull_request(*records)
    return [str(note) for note in judged.notes if "pinned" in str(note)]


def test_pinned_choices_of_the_autotuner_are_noted() -> None:
    assert notes_on_pinned(FREE, FREE) == []
    (note,) = notes_on_pinned(PINNED, PINNED)
    assert "pinned to the base's, for 1 autotuned function" in note


def test_a_choice_that_the_head_cannot_pin_is_noted() -> None:
    _, exception = notes_on_pinned(PINNED, FREE)
    assert exception == f"k of {CASE_ID} is not pinned: the head has no such configuration"


# --- benchmarks of one side


def test_a_removed_benchmark_leaves_the_verdict_to_the_others() -> None:
    base = [make_timed(), make_timed(SOFTMAX)]

    unchanged = judge(base, [make_timed()])
    slower = judge(base, [make_timed(median_ns=2e6)])

    assert (unchanged.verdict, exit_code(unchanged.verdict)) == (Verdict.UNCHANGED, 0)
    assert slower.verdict is Verdict.REGRESSED
    assert {case.reason for case in unchanged.cases} == {
        Reason.WITHIN_THRESHOLD,
        Reason.REMOVED_CASE,
    }
    assert headline(unchanged).template == "no regression in 1 benchmark"
    assert "1 removed" in summary_line(unchanged)


def test_nothing_is_decided_if_every_benchmark_was_removed() -> None:
    everything = judge([make_timed()], [make_static_facts()])

    assert everything.verdict is Verdict.INCONCLUSIVE


def test_nothing_is_decided_if_no_benchmark_was_timed_at_the_head() -> None:
    untimed = judge(
        [make_timed(), make_accuracy(), make_timed(SOFTMAX)], [make_accuracy(), make_timed(SOFTMAX)]
    )

    assert untimed.verdict is Verdict.INCONCLUSIVE


def test_a_new_implementation_is_compared_with_the_others_of_the_head() -> None:
    slower = make_timed(implementation="eager", median_ns=2e6)
    head = [
        make_timed(),
        slower,
        make_timed(implementation="triton", median_ns=5e5),
        make_accuracy(implementation="triton", rmse_ratio=1e-6),
        make_static_facts(shared_bytes=1024),
    ]

    judgement = judge([make_timed(), slower], head)

    assert judgement.verdict is Verdict.UNCHANGED
    (new,) = judgement.new_implementations
    assert (new.kernel, new.implementation, new.right_count) == ("rms_norm", "triton", 1)
    assert new.rmse_ratio == 1e-6
    assert [rival.implementation for rival in new.rivals] == ["torch", "eager"]
    changes = [rival.comparison.relative_change for rival in new.rivals]
    assert changes == pytest.approx([-0.5, -0.75])
    assert [facts.shared_bytes for facts in new.facts] == [1024]
    text = "1 new implementation, rms_norm triton -50% against torch"
    assert str(headline(judgement)).startswith(text)
    assert "new implementations" in [str(table.title) for table in judgement_tables(judgement)]
    assert "-50.0%" in concluded(judgement, to_markdown(judgement)).summary


def test_a_new_shape_of_an_existing_implementation_is_only_a_new_case() -> None:
    other = "rms_norm/n_rows=128,n_cols=128/float32/fwd"

    judgement = judge([make_timed()], [make_timed(), make_timed(other)])

    assert judgement.new_implementations == ()
    assert judgement.counts["new"] == 1


def test_a_new_implementation_that_was_not_timed_has_its_reason() -> None:
    untimed = make_measurement(
        implementation="triton", outcome=Outcome.UNSUPPORTED, message="needs a GPU"
    )

    (new,) = judge(
        [make_timed()], [make_timed(), untimed, make_accuracy(implementation="triton")]
    ).new_implementations

    assert [str(line) for line in new.times] == ["not timed: needs a GPU"]


def test_what_fails_on_both_sides_is_no_result() -> None:
    crashed = make_measurement(outcome=Outcome.CRASHED)

    judgement = judge([crashed], [crashed])

    assert (judgement.verdict, judgement.exit_code) == (Verdict.INCONCLUSIVE, 2)
    assert str(headline(judgement)) == "no result: 1 benchmark still failing"


def test_a_benchmark_that_still_fails_is_named_beside_those_that_did_not_change() -> None:
    crashed = make_measurement(implementation="broken", outcome=Outcome.CRASHED)

    judgement = judge([make_timed(), crashed], [make_timed(), crashed])

    assert (judgement.verdict, judgement.exit_code) == (Verdict.UNCHANGED, 0)
    assert "1 benchmark still failing" in str(headline(judgement))


def test_cases_that_fail_with_one_message_share_a_row() -> None:
    works = [make_measurement(case_id) for case_id in (CASE_ID, SOFTMAX)]
    message = "ModuleNotFoundError: No module named 'qk'"
    fails = [
        make_measurement(case_id, outcome=Outcome.CRASHED, message=message)
        for case_id in (CASE_ID, SOFTMAX)
    ]

    (findings, *_) = judgement_tables(judge(works, fails))

    (cells,) = zip(*(column.cells for column in findings.columns), strict=True)
    assert any(str(cell).endswith("and 1 more") for cell in cells)


def test_equal_sources_that_are_slower_with_another_toolchain_have_that_cause() -> None:
    base, head = make_records([make_timed()], [make_timed(median_ns=2e6)])
    digests = {"source_digests": {CASE_ID.partition("/")[0]: "a" * 64}}
    newer = head.environment.model_copy(update={"triton_version": "9.9.0"})
    base = base.model_copy(update=digests)

    other_toolchain = judge_pull_request(
        base, head.model_copy(update={**digests, "environment": newer})
    )
    same_toolchain = judge_pull_request(base, head.model_copy(update=digests))

    assert only_case(other_toolchain).cause is Cause.TOOLCHAIN
    assert only_case(same_toolchain).cause is None


def test_a_predicted_slowdown_is_evidence_unless_the_policy_says_otherwise() -> None:
    base, head = make_pair_of_records()
    sides: list[RunRecord] = []
    for record, code, time_ns, instructions in (
        (base, "a", 1_000.0, 30.0),
        (head, "b", 2_000.0, 60.0),
    ):
        estimate = CodeEstimate(
            predicted_ns=time_ns,
            variants_ns=(time_ns,),
            limit="issue",
            element_count=1,
            instructions_per_element=instructions,
        )
        measured = record.measurements[0]
        facts = make_static_facts(
            measured.case_id,
            implementation=measured.implementation,
            code=code,
            estimate=estimate,
        )
        sides.append(record.model_copy(update={"static_facts": (facts,)}))

    judgement = judge_pull_request(*sides)
    strict = judge_pull_request(*sides, policy=CheckPolicy(predicted_fails=True))

    assert judgement.counts["predicted_slower"] == 1
    assert judgement.verdict is not Verdict.REGRESSED
    assert "predicted slower" in to_markdown(judgement)
    assert strict.verdict is Verdict.REGRESSED
