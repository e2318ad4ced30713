"""What the cycle model predicts is compared under the same assumptions, and decides nothing."""

import pytest

from roofwatch.ci.static.comparison import ALL_LAUNCHES, StaticChange, judge_static
from roofwatch.ci.static.prediction import compare_estimates
from roofwatch.model.results import CodeEstimate, StaticFacts
from roofwatch.model.verdict import Reason, Verdict, exit_code
from tests.builders import make_static_facts

FASTER = Verdict.PREDICTED_FASTER


def make_estimate(
    *variants_ns: float,
    instructions: float = 30.0,
    limit: str = "issue",
    local_bytes_moved: float = 0.0,
) -> CodeEstimate:
    return CodeEstimate(
        predicted_ns=variants_ns[0],
        variants_ns=variants_ns,
        limit=limit,
        bounds_ns={limit: variants_ns[0]},
        element_count=1_000_000,
        instructions_per_element=instructions,
        requested_bytes=4e6,
        local_bytes_moved=local_bytes_moved,
    )


def make_facts(
    *variants_ns: float, code: str, instructions: float = 30.0, local_bytes: int = 0
) -> StaticFacts:
    estimate = make_estimate(*variants_ns, instructions=instructions)
    return make_static_facts(code=code, estimate=estimate, local_bytes=local_bytes)


def judge(base: StaticFacts, head: StaticFacts) -> StaticChange:
    (change,) = judge_static([base], [head]).changes
    return change


def test_more_instructions_under_every_assumption_are_predicted_slower() -> None:
    base = make_facts(1_000, 1_100, code="a")
    head = make_facts(2_000, 1_700, code="b", instructions=60.0)

    change = judge(base, head)

    assert (change.verdict, change.reason) == (Verdict.PREDICTED_SLOWER, Reason.TIME_PREDICTED)
    assert str(change.detail).startswith(
        "30 to 60 instructions an element; bound by issue; predicted 2x slower (1.4 to 2.4)"
    )
    assert judge(head, base).verdict is Verdict.PREDICTED_FASTER


def test_a_prediction_is_no_regression() -> None:
    assert exit_code(Verdict.PREDICTED_SLOWER) == 0
    assert not Verdict.PREDICTED_SLOWER.is_change


def test_an_assumption_that_disagrees_leaves_it_open() -> None:
    base = make_facts(1_000, 1_000, code="a")
    head = make_facts(1_500, 1_000, code="b", instructions=60.0)

    assert judge(base, head).verdict is Verdict.UNCHANGED


def test_the_same_work_with_another_occupancy_is_evidence_only() -> None:
    base, head = make_estimate(2_000, 2_000), make_estimate(1_000, 1_000)

    assert compare_estimates(base, head).verdict is Verdict.UNCHANGED


@pytest.mark.parametrize("local_bytes", [0, 1_232])
def test_a_fact_decides_before_the_prediction(local_bytes: int) -> None:
    base = make_facts(1_000, code="a", local_bytes=local_bytes)
    head = make_facts(2_000, code="b", local_bytes=local_bytes + 100, instructions=60.0)

    assert judge(base, head).reason is Reason.SPILLS_CHANGED


def test_a_spill_that_the_rest_outweighs_is_predicted_faster() -> None:
    base = make_facts(2_000, code="a")
    head = make_facts(1_000, code="b", local_bytes=8, instructions=15.0)

    assert judge(base, head).verdict is Verdict.PREDICTED_FASTER


def test_many_spills_are_not_outweighed() -> None:
    estimate = make_estimate(1_000, instructions=15.0, local_bytes_moved=1e6)
    head = make_static_facts(code="b", local_bytes=456, estimate=estimate)

    assert judge(make_facts(2_000, code="a"), head).verdict is Verdict.REGRESSED


def test_a_call_of_other_functions_is_predicted_by_its_sum() -> None:
    base = [make_facts(1_000, code="a", instructions=30.0)]
    halves = [
        make_static_facts(
            function=name, code=name, estimate=make_estimate(1_000, instructions=20.0)
        )
        for name in ("_first", "_second")
    ]

    changes = judge_static(base, halves).changes

    (call,) = [change for change in changes if change.subject.part == ALL_LAUNCHES]
    assert call.verdict is Verdict.PREDICTED_SLOWER
    assert "1 to 2 functions" in str(call.detail)


def test_a_spill_for_occupancy_alone_is_a_regression() -> None:
    base = make_facts(2_000, code="a")
    estimate = make_estimate(1_000, local_bytes_moved=1e5)
    head = make_static_facts(code="b", local_bytes=8, estimate=estimate)

    change = judge(base, head)

    assert (change.verdict, change.reason) == (Verdict.REGRESSED, Reason.SPILLS_CHANGED)


def test_a_gain_within_the_model_error_outweighs_no_spill() -> None:
    base = make_facts(1_000, code="a")
    head = make_facts(940, code="b", local_bytes=8, instructions=25.0)

    assert judge(base, head).verdict is Verdict.REGRESSED
    assert judge(base, make_facts(940, code="b", instructions=25.0)).verdict is (
        Verdict.PREDICTED_FASTER
    )


def test_less_time_with_more_work_is_evidence_only() -> None:
    base, head = make_estimate(2_000), make_estimate(1_000, instructions=40.0)

    assert compare_estimates(base, head).verdict is Verdict.UNCHANGED


def test_another_number_of_warps_needs_a_larger_change() -> None:
    base = make_estimate(1_000)
    slightly_slower, much_slower = [
        make_estimate(time_ns, instructions=40.0) for time_ns in (1_240, 1_500)
    ]

    assert compare_estimates(base, slightly_slower).verdict is Verdict.PREDICTED_SLOWER
    for head, verdict in (
        (slightly_slower, Verdict.UNCHANGED),
        (much_slower, Verdict.PREDICTED_SLOWER),
    ):
        assert compare_estimates(base, head, has_other_warps=True).verdict is verdict


def test_trips_of_data_with_other_tiles_are_evidence_only() -> None:
    def facts(time_ns: float, *, tile: int, has_unknown_trips: bool) -> StaticFacts:
        estimate = make_estimate(time_ns, instructions=time_ns / 10)
        estimate = estimate.model_copy(update={"has_unknown_trips": has_unknown_trips})
        return make_static_facts(
            code=f"tile {tile}", estimate=estimate, configuration={"BLOCK_N": tile}
        )

    for has_unknown_trips, verdict in ((True, Verdict.UNCHANGED), (False, FASTER)):
        base = facts(2_000, tile=64, has_unknown_trips=has_unknown_trips)
        head = facts(1_000, tile=32, has_unknown_trips=has_unknown_trips)
        same_tile = facts(1_000, tile=64, has_unknown_trips=has_unknown_trips)

        assert judge(base, head).verdict is verdict
        assert judge(base, same_tile.model_copy(update={"code_hash": "e" * 64})).verdict is FASTER


def test_trips_of_data_that_follow_the_tile_are_predicted() -> None:
    def facts(time_ns: float, *, tile: int) -> StaticFacts:
        estimate = make_estimate(time_ns, instructions=time_ns / 10)
        update = {"has_unknown_trips": True, "has_trips_of_tiles": True}
        return make_static_facts(
            code=f"tile {tile}",
            estimate=estimate.model_copy(update=update),
            configuration={"BLOCK_N": tile},
        )

    assert judge(facts(2_000, tile=64), facts(1_000, tile=32)).verdict is FASTER
