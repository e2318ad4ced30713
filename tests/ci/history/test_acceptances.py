"""What was accepted in a pull request raises no alert on the main branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.alerts.conditions import why_not_alerting
from roofwatch.ci.forges.acceptance import findings_of
from roofwatch.ci.history.acceptances import accepted_in
from roofwatch.ci.history.analyse import analyse_project
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.db.regressions.acceptances import list_acceptances, store_acceptance
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.model.acceptance import AcceptedRegression, Grain, PullRequestAcceptance
from roofwatch.model.history import Regression
from roofwatch.model.machine import Outcome
from roofwatch.model.record import MergedPullRequest, RunRecord
from roofwatch.model.triage import TriagedRegression, TriageState
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_accuracy,
    make_change_point,
    make_commit,
    make_pair_of_records,
    make_regression,
    make_series_key,
    make_static_facts,
    sha_of,
)
from tests.ci.values import make_records
from tests.databases import ingest_all, set_triage

HEAD = sha_of(4, branch="feature")
SLOWER = 12_000.0


def accepted(*records: RunRecord, **fields: Any) -> PullRequestAcceptance:
    """An acceptance of what a pull request reports of two records."""
    findings = findings_of([judge_pull_request(*records)], HEAD)
    assert findings is not None
    defaults: dict[str, Any] = {
        "pull_request": "#12",
        "comment_id": 7,
        "head_sha": HEAD,
        "person": "maintainer",
        "reason": "needed for accuracy",
        "accepted_at": NOON,
        "most": findings.most,
        "grain": findings.grain,
    }
    return PullRequestAcceptance(**defaults | fields)


def slower_pair(head_median_ns: float = SLOWER) -> tuple[RunRecord, RunRecord]:
    return make_pair_of_records(3, 4, head_median_ns=head_median_ns, block_count=8)


def merge_of(number: int | None, count: int, head_sha: str | None = None) -> MergedPullRequest:
    return MergedPullRequest(first_parent_count=count, number=number, head_sha=head_sha)


REGRESSION = make_regression(1)
"""20 % slower at the second commit."""
MERGED = merge_of(12, 2)
TWENTY_PERCENT = AcceptedRegression("#12", "maintainer", "needed for accuracy")


@pytest.mark.parametrize(
    ("head_ns", "merged", "is_accepted"),
    [
        pytest.param(SLOWER, [MERGED], True, id="by the number of a squash"),
        pytest.param(SLOWER, [merge_of(None, 2, HEAD)], True, id="by the head of a merge"),
        pytest.param(SLOWER, [], False, id="merged by nothing that is known"),
        pytest.param(SLOWER, [merge_of(13, 2)], False, id="another pull request"),
        pytest.param(SLOWER, [merge_of(12, 1)], False, id="merged before the range"),
        pytest.param(11_000.0, [MERGED], False, id="larger than accepted"),
    ],
)
def test_an_acceptance_covers_what_its_pull_request_merged_up_to_its_size(
    head_ns: float, merged: list[MergedPullRequest], is_accepted: bool
) -> None:
    acceptance = accepted(*slower_pair(head_ns))

    found = accepted_in(REGRESSION, [acceptance], merged)

    assert found == (TWENTY_PERCENT if is_accepted else None)


def test_a_change_of_another_kernel_in_the_same_regression_is_not_covered() -> None:
    elsewhere = make_series_key(case_id=CASE_ID.replace("rms_norm", "softmax"))
    regression = make_regression(
        change_points=(make_change_point(), make_change_point(series=elsewhere))
    )

    assert accepted_in(regression, [accepted(*slower_pair())], [MERGED]) is None


def test_several_pull_requests_of_one_night_are_named() -> None:
    elsewhere = make_series_key(case_id=CASE_ID.replace("rms_norm", "softmax"))
    regression = make_regression(
        change_points=(make_change_point(), make_change_point(series=elsewhere))
    )
    first = accepted(*slower_pair())
    name = (elsewhere.case_id, elsewhere.implementation, "beyond_threshold", "time")
    second = replace(
        first,
        pull_request="#13",
        person="owner",
        reason="simpler",
        most={Grain.FINDING.key_of(name): 0.5},
    )

    found = accepted_in(regression, [second, first], [MERGED, merge_of(13, 2)])

    assert found == AcceptedRegression(
        "#12, #13", "maintainer, owner", "#12: needed for accuracy; #13: simpler"
    )


@pytest.mark.parametrize(("after", "is_accepted"), [(16.0, True), (64.0, False)])
def test_machine_code_is_covered_up_to_its_size(after: float, is_accepted: bool) -> None:
    base, head = (
        make_static_facts(code=f"spills {local_bytes}", local_bytes=local_bytes)
        for local_bytes in (0, 16)
    )
    series = make_series_key(
        "local_bytes",
        case_id=head.case_id,
        implementation=head.implementation,
        runner_class="",
        function=head.function,
        target=head.target,
    )
    point = make_change_point(series=series, before=0.0, after=after)

    found = accepted_in(
        make_regression(change_points=(point,)),
        [accepted(*make_records([base], [head]))],
        [MERGED],
    )

    assert (found is not None) is is_accepted


@pytest.mark.parametrize("wrong_results", [True, False])
def test_a_wrong_result_is_covered_only_if_it_was_accepted_by_name(wrong_results: bool) -> None:
    records = make_records(
        [make_accuracy()], [make_accuracy(outcome=Outcome.INCORRECT, rmse_ratio=0.3)]
    )
    point = make_change_point(series=make_series_key("rmse_ratio"), before=1e-7, after=None)

    found = accepted_in(
        make_regression(change_points=(point,)),
        [accepted(*records, wrong_results=wrong_results)],
        [MERGED],
    )

    assert (found is not None) is wrong_results


@pytest.mark.parametrize("grain", list(Grain))
def test_bounds_of_groups_cover_too(grain: Grain) -> None:
    name = (CASE_ID, "torch", "beyond_threshold", "time")
    acceptance = replace(accepted(*slower_pair()), grain=grain, most={grain.key_of(name): 0.25})

    assert accepted_in(REGRESSION, [acceptance], [MERGED]) == TWENTY_PERCENT


# --- in the store


def measure_main(store: Engine, *merged: MergedPullRequest) -> None:
    """Measure two commits of the main branch as a pair, three commits apart."""
    base, head = make_pair_of_records(2, 5, head_median_ns=SLOWER, block_count=8)
    commit = make_commit(5, merged=merged)
    ingest_all(store, base, head.model_copy(update={"commit": commit}))


def only_regression(store: Engine) -> TriagedRegression:
    with Session(store) as session:
        (triaged,) = list_triaged(session, PROJECT)
    return triaged


def found_regressions(store: Engine) -> list[Regression]:
    return analyse_project(store, PROJECT)


@pytest.mark.parametrize("is_late", [False, True])
def test_an_accepted_slowdown_raises_no_alert_on_the_main_branch(
    store: Engine, is_late: bool
) -> None:
    acceptance = accepted(*slower_pair())
    if not is_late:
        store_acceptance(store, PROJECT, acceptance, "token 1")
    measure_main(store, merge_of(14, 6), merge_of(12, 5))
    found_regressions(store)
    if is_late:
        assert why_not_alerting(only_regression(store)) is None
        store_acceptance(store, PROJECT, acceptance, "token 1")
        found_regressions(store)

    triaged = only_regression(store)

    assert triaged.triage.state is TriageState.EXPECTED
    assert triaged.settled_by == "accepted by maintainer in #12"
    assert why_not_alerting(triaged) == "accepted by maintainer in #12: needed for accuracy"


def test_without_the_acceptance_there_is_an_alert(store: Engine) -> None:
    measure_main(store, merge_of(12, 5))

    found_regressions(store)

    assert why_not_alerting(only_regression(store)) is None


def test_what_a_person_reopens_is_not_settled_again(store: Engine) -> None:
    store_acceptance(store, PROJECT, accepted(*slower_pair()), "token 1")
    measure_main(store, merge_of(12, 5))
    found_regressions(store)
    set_triage(
        store,
        PROJECT,
        only_regression(store).triage.regression_id,
        TriageState.NEW,
        person="A Person",
        reason="not this much",
        actor="test",
    )

    found_regressions(store)

    triage = only_regression(store).triage
    assert (triage.state, triage.accepted_in) == (TriageState.NEW, None)


def test_an_acceptance_is_stored_once(store: Engine) -> None:
    acceptance = accepted(*slower_pair())

    assert store_acceptance(store, PROJECT, acceptance, "token 1")
    assert not store_acceptance(store, PROJECT, acceptance, "token 1")


def test_an_acceptance_follows_its_commit(store: Engine) -> None:
    acceptance = accepted(*slower_pair())
    later = replace(acceptance, head_sha=sha_of(9))

    store_acceptance(store, PROJECT, acceptance, "token 1")
    assert store_acceptance(store, PROJECT, later, "token 1")

    with Session(store) as session:
        assert list_acceptances(session, PROJECT) == [later]
