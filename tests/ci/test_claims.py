"""What a check makes of missing evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roofwatch.ci.forges.check_run import Conclusion, concluded, not_measured, without_records
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.not_measured import NotMeasured
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.ci.report.titles import headline, is_silent
from roofwatch.configuration.check_policy import read_policy
from roofwatch.configuration.settings import SettingsError
from roofwatch.model.claim import DEFAULT_POLICY, CheckPolicy, ClaimKind, RequiredEvidence
from roofwatch.model.machine import Outcome
from roofwatch.model.verdict import Reason, Verdict
from roofwatch.pull_requests.posting import report_on
from tests.builders import (
    make_accuracy,
    make_commit,
    make_environment,
    make_measurement,
    make_source_line,
    make_static_facts,
)
from tests.ci.values import LOUD, QUIET, make_records, make_timed
from tests.git_repository import commit_all, make_repository

EVERYTHING = CheckPolicy(requires=tuple(RequiredEvidence))


def untimed() -> Any:
    message = "Triton code does not run on a CPU: checked in the interpreter and compiled"
    return make_measurement(implementation="triton", outcome=Outcome.UNSUPPORTED, message=message)


def judge(
    *, policy: CheckPolicy = DEFAULT_POLICY, changed: bool = True, **head_fields: Any
) -> PullRequestJudgement:
    """A Triton kernel on a machine without a GPU."""
    results = [untimed(), make_accuracy(implementation="triton"), make_static_facts()]
    digests = {"source_digests": {"rms_norm": "b" if changed else "a"}}
    return judge_pull_request(
        *make_records(results, results, head_fields=digests | head_fields), policy=policy
    )


def conclusion(judgement: PullRequestJudgement) -> Conclusion | None:
    return concluded(judgement, to_markdown(judgement)).conclusion


def test_a_changed_kernel_without_a_time_passes_only_if_the_policy_says_so() -> None:
    undecided, passed = judge(), judge(policy=CheckPolicy(untimed_passes=True))

    assert (undecided.exit_code, conclusion(undecided)) == (2, Conclusion.NEUTRAL)
    assert not is_silent(undecided)
    assert (passed.exit_code, conclusion(passed)) == (0, Conclusion.SUCCESS)
    assert "time of 1 kernel not measured (no GPU)" in str(headline(passed))
    assert passed.counts["not timed"] == 1


def test_required_time_that_was_not_measured_fails() -> None:
    judgement = judge(policy=CheckPolicy(requires=(RequiredEvidence.TIME,)))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert (judgement.exit_code, conclusion(judgement)) == (1, Conclusion.FAILURE)
    assert str(headline(judgement)).startswith("required but missing: time of 1 of 1; accuracy ok")
    assert to_markdown(judgement).startswith("### ❌ Required but missing: time of 1 of 1")


@pytest.mark.parametrize("requires", [(RequiredEvidence.ACCURACY,), (RequiredEvidence.CODE,), ()])
def test_evidence_that_is_there_is_not_missing(requires: tuple[RequiredEvidence, ...]) -> None:
    judgement = judge(policy=CheckPolicy(requires=requires))

    assert judgement.missing == ()
    assert judgement.exit_code == 2


def test_identical_code_needs_no_time() -> None:
    judgement = judge(policy=EVERYTHING, changed=False)

    assert (judgement.missing, judgement.exit_code) == ((), 0)


def test_equal_sources_under_another_torch_are_not_the_same_code() -> None:
    other = make_environment(torch_version="2.14.0")

    assert judge(changed=False, environment=other).exit_code == 2


def test_required_evidence_that_was_not_made_is_missing() -> None:
    line = make_source_line(implementation="triton").model_copy(update={"is_jitted": True})
    judgement = judge_pull_request(
        *make_records([untimed()], [untimed()], head_fields={"source_lines": (line,)}),
        policy=EVERYTHING,
    )

    assert judgement.missing == ("accuracy of 1 of 1", "code of 1 of 1")


def test_a_check_with_requirements_fails_without_comparable_records(tmp_path: Path) -> None:
    refused = judge_pull_request(
        *make_records([make_timed()], [make_timed()], head_fields={"project": "another/project"}),
        policy=EVERYTHING,
    )
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "head-x.json"
    broken.write_text("{}")
    base_broken = NotMeasured.of(make_commit(1), "SuiteError: x cannot be imported", "base")
    untouched = NotMeasured.of(make_commit(1))

    assert refused.missing == ("comparable records",)
    assert refused.exit_code == 1
    for policy, expected in (
        (CheckPolicy(), Conclusion.NEUTRAL),
        (EVERYTHING, Conclusion.FAILURE),
    ):
        checks = [
            not_measured("no record", policy=policy),
            without_records(base_broken, policy=policy),
            report_on([tmp_path / "empty"], None, policy=policy).check,
            report_on([broken, broken], None, policy=policy).check,
        ]
        assert [check.conclusion for check in checks] == [expected] * 4
        assert without_records(untouched, policy=policy).conclusion is Conclusion.SUCCESS


def test_times_that_decide_satisfy_everything() -> None:
    results: list[Any] = [make_timed(), make_accuracy()]
    head: list[Any] = [make_timed(levels=QUIET[::-1]), make_accuracy()]

    judgement = judge_pull_request(*make_records(results, head), policy=EVERYTHING)

    assert (judgement.missing, judgement.exit_code) == ((), 0)


# --- where the policy comes from


def test_the_policy_of_a_pull_request_is_that_of_its_base(tmp_path: Path) -> None:
    make_repository(tmp_path)
    settings = tmp_path / "roofwatch.toml"
    settings.write_text('[check]\nrequires = ["time"]\n')
    base = commit_all(tmp_path)
    settings.write_text('[check]\nuntimed = "pass"\n')
    commit_all(tmp_path)
    event = {"pull_request": {"base": {"sha": base}}}

    for changed in (
        read_policy({}, event, repository=tmp_path),
        read_policy({}, {"merge_group": {"base_sha": base}}, repository=tmp_path),
        read_policy({"CI_MERGE_REQUEST_DIFF_BASE_SHA": base}, {}, repository=tmp_path),
    ):
        assert changed == CheckPolicy(requires=(RequiredEvidence.TIME,))
    assert read_policy({}, {}, repository=tmp_path) == CheckPolicy(untimed_passes=True)
    # without the base commit, the file of the change does not count either
    absent = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "0" * 40}
    assert read_policy(absent, {}, repository=tmp_path) == CheckPolicy()


def test_inputs_of_the_workflow_take_precedence(tmp_path: Path) -> None:
    (tmp_path / "roofwatch.toml").write_text('[check]\nrequires = ["time"]\n')

    policy = read_policy({}, {}, requires="accuracy,code", repository=tmp_path)

    assert policy == CheckPolicy(requires=(RequiredEvidence.ACCURACY, RequiredEvidence.CODE))


def test_inputs_of_the_workflow_are_checked(tmp_path: Path) -> None:
    (tmp_path / "roofwatch.toml").write_text('[check]\nrequires = ["time"]\n')

    with pytest.raises(SettingsError, match="contradicts"):
        read_policy({}, {}, untimed="pass", repository=tmp_path)
    with pytest.raises(SettingsError, match="accuracy"):
        read_policy({}, {}, requires="speed", repository=tmp_path)


def judge_noisy(*, head_digest: str, **head_fields: Any) -> PullRequestJudgement:
    """Two implementations: one is edited and timed well, the times of the other are noisy."""
    edited = make_timed(implementation="triton")
    noisy_base = make_timed(implementation="torch", levels=LOUD)
    noisy_head = make_timed(implementation="torch", levels=LOUD[::-1])
    names = ("rms_norm/triton", "rms_norm/torch")
    base_digests = dict.fromkeys(names, "a")
    return judge_pull_request(
        *make_records(
            [edited, noisy_base],
            [edited, noisy_head],
            base_fields={"implementation_digests": base_digests},
            head_fields={
                "source_digests": {"rms_norm": "b"},
                "implementation_digests": {names[0]: "b", names[1]: head_digest},
            }
            | head_fields,
        )
    )


def test_noise_of_an_implementation_that_did_not_change_decides_nothing() -> None:
    judgement = judge_noisy(head_digest="a")

    reference = next(case for case in judgement.cases if case.implementation == "torch")
    assert (reference.verdict, reference.reason) == (Verdict.INCONCLUSIVE, Reason.SAME_CODE)
    assert reference.evidence.claimed.kind is ClaimKind.TIMED_UNDECIDED
    assert (judgement.verdict, judgement.exit_code) == (Verdict.UNCHANGED, 0)
    assert "no change in 1 benchmark" in str(headline(judgement))
    assert "too noisy to compare" in str(headline(judgement))


def test_the_same_code_in_another_environment_is_no_control() -> None:
    others = {"requirements": {"numpy": "numpy==2"}}

    for judgement in (judge_noisy(head_digest="b"), judge_noisy(head_digest="a", **others)):
        reference = next(case for case in judgement.cases if case.implementation == "torch")
        assert reference.reason is Reason.NOISE
        assert judgement.verdict is Verdict.INCONCLUSIVE


def test_an_implementation_with_the_same_sources_is_never_slower() -> None:
    slower = QUIET[::-1]
    digests = {"rms_norm/triton": "a"}
    judgement = judge_pull_request(
        *make_records(
            [make_timed(implementation="triton")],
            [make_timed(implementation="triton", levels=[level * 1.5 for level in slower])],
            base_fields={"implementation_digests": digests},
            head_fields={"implementation_digests": digests},
        )
    )

    (case,) = judgement.cases
    assert (case.verdict, case.reason) == (Verdict.INCONCLUSIVE, Reason.SAME_SOURCES)
    assert case.log_interval is not None
    assert judgement.verdict is Verdict.INCONCLUSIVE
