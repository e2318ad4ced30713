"""Another choice of the autotuner between base and head."""

from roofwatch.ci.ab.launches import find_flips
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.record.measurement import Autotuning
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.values import Verdict
from tests.builders import make_environment, make_measurement, make_static_facts
from tests.ci.values import make_choice, make_records, make_timed

TIMES = {64: 12.6, 128: 12.8}


def sentences(base: list[Autotuning], head: list[Autotuning]) -> list[str]:
    sides = (make_measurement(autotuning=tuple(choices)) for choices in (base, head))
    return [str(flip.remark) for flip in find_flips(*sides)]


def test_another_choice_is_told_with_its_own_timings_and_only_what_differs() -> None:
    assert sentences([make_choice(128)], [make_choice(64, times_us=TIMES)]) == [
        "the autotuner of _kernel chose BLOCK=64 instead of BLOCK=128; its own timings: 12.6 µs against 12.8 µs"
    ]


def test_the_same_choice_is_no_flip_however_the_timings_moved() -> None:
    assert sentences([make_choice(64, times_us={64: 1.0})], [make_choice(64, times_us=TIMES)]) == []
    assert sentences([], [make_choice(64)]) == []
    assert sentences([make_choice(64)], []) == []


def test_a_choice_without_timings_is_told_without_them() -> None:
    assert sentences([make_choice(128)], [make_choice(64, is_cached=True)]) == [
        "the autotuner of _kernel chose BLOCK=64 instead of BLOCK=128"
    ]


def test_a_configuration_that_the_head_does_not_try_any_more_is_said_to_be_so() -> None:
    assert sentences([make_choice(256)], [make_choice(64, times_us=TIMES)]) == [
        "the autotuner of _kernel chose BLOCK=64 instead of BLOCK=256; its own timings: 12.6 µs, and the other was not "
        "tried"
    ]


def test_choices_are_paired_by_what_they_depend_on() -> None:
    base = [make_choice(64, key="1"), make_choice(128, key="2")]
    head = [make_choice(64, key="1"), make_choice(32, key="2"), make_choice(32, key="3")]

    assert sentences(base, head) == ["the autotuner of _kernel chose BLOCK=32 instead of BLOCK=128"]


def test_a_key_that_is_made_otherwise_pairs_by_the_function_where_that_is_clear() -> None:
    assert len(sentences([make_choice(64, key="4096")], [make_choice(128, key="4096, 7")])) == 1
    assert sentences([make_choice(64, key="1"), make_choice(64, key="2")], [make_choice(128, key="3")]) == []


def test_a_side_that_wavers_has_flipped_only_if_it_never_chose_as_the_other() -> None:
    wavering = [make_choice(64, times_us=TIMES), make_choice(128)]

    assert sentences([make_choice(128)], wavering) == []
    assert sentences([make_choice(256)], wavering) == [
        "the autotuner of _kernel chose BLOCK=64 or BLOCK=128 instead of BLOCK=256; its own timings: 12.6 µs, and the "
        "other was not tried"
    ]


def on_a_gpu(base: Autotuning, head: Autotuning) -> tuple[RunRecord, RunRecord]:
    """A kernel that is 40 % slower with the same machine code for every configuration."""
    fields = {"environment": make_environment(device_kind="cuda", compute_capability="9.0")}
    facts = make_static_facts(implementation="triton", target="sm_90")
    before, after = (
        make_timed(implementation="triton", median_ns=median_ns, autotuning=(choice,))
        for median_ns, choice in ((1e6, base), (1.4e6, head))
    )
    return make_records([before, facts], [after, facts], base_fields=fields, head_fields=fields)


def test_a_kernel_that_got_slower_by_another_choice_has_regressed_though_its_code_is_the_same() -> None:
    (same,) = judge_pull_request(*on_a_gpu(make_choice(64), make_choice(64))).cases
    (flipped,) = judge_pull_request(*on_a_gpu(make_choice(128), make_choice(64))).cases

    assert (same.verdict, same.reason) == (Verdict.INCONCLUSIVE, Reason.SAME_MACHINE_CODE)
    assert (flipped.verdict, flipped.reason) == (Verdict.REGRESSED, Reason.BEYOND_THRESHOLD)
    assert len(flipped.flips) == 1
