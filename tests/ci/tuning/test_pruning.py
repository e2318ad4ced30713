"""Which configurations are worth timing, by what they compile to."""

from typing import Any

from roofwatch.ci.tuning.pruning import choose_predicted, prune
from roofwatch.model.machine import Outcome
from roofwatch.model.results import CodeEstimate
from roofwatch.model.tuning import ConfiguredCode, Loss
from tests.builders import make_static_facts


def make_code(block: int, time_ns: float | None = 1_000.0, **fields: Any) -> ConfiguredCode:
    """A configuration whose only launch is predicted to take a time, give or take 10 %."""
    estimate = None
    if time_ns is not None:
        estimate = CodeEstimate(
            predicted_ns=time_ns,
            variants_ns=(time_ns, 0.9 * time_ns, 1.1 * time_ns),
            limit="memory",
            bounds_ns={"memory": time_ns},
            element_count=1_000,
            instructions_per_element=10.0,
        )
    defaults = {"estimate": estimate, "theoretical_occupancy": 0.5}
    facts = make_static_facts(**defaults | fields)
    return ConfiguredCode(configuration={"BLOCK": block}, facts=(facts,))


FAILED = ConfiguredCode(
    configuration={"BLOCK": 1000},
    facts=(make_static_facts(outcome=Outcome.COMPILE_ERROR, message="not a power of 2"),),
)


def losses(codes: list[ConfiguredCode]) -> list[Loss | None]:
    return [tried.loss for tried in prune(codes)]


def test_what_cannot_win_is_pruned_with_a_reason() -> None:
    codes = [
        make_code(64, 5_000.0),
        make_code(128),
        make_code(256, 1_100.0),
        make_code(512, 1_200.0),
        make_code(1024, local_bytes=456),
        make_code(2048, theoretical_occupancy=0.0, occupancy_limits=("shared memory",)),
        FAILED,
    ]

    assert losses(codes) == [
        Loss.PREDICTED_SLOWER,
        None,
        None,
        None,
        Loss.SPILLS,
        Loss.DOES_NOT_FIT,
        Loss.NOT_COMPILED,
    ]
    details = [tried.detail for tried in prune(codes)]
    assert "predicted 5x slower" in details[0]
    assert details[4] == "456 B of local memory a thread; 4 have none"
    assert details[5] == "no block fits: too much of shared memory"
    assert details[6] == "not a power of 2"


def test_few_configurations_are_timed_whatever_the_model_says() -> None:
    assert losses([make_code(64, 9_000.0), make_code(128), make_code(256, 4_000.0)]) == [None] * 3


def test_spills_do_not_count_if_everything_spills() -> None:
    assert losses([make_code(64, local_bytes=8), make_code(128, local_bytes=16)]) == [None, None]


def test_without_a_device_the_predicted_fastest_is_chosen() -> None:
    ranked = choose_predicted(
        [make_code(64, 2_000.0), FAILED, make_code(128, 1_010.0), make_code(256)]
    )

    assert [tried.configuration["BLOCK"] for tried in ranked] == [256, 128, 64, 1000]
    assert [tried.loss for tried in ranked] == [
        None,
        Loss.TIED,
        Loss.PREDICTED_SLOWER,
        Loss.NOT_COMPILED,
    ]


def test_without_estimates_nothing_is_chosen() -> None:
    ranked = choose_predicted([make_code(64, None), make_code(128, None)])

    assert [tried.loss for tried in ranked] == [Loss.UNKNOWN, Loss.UNKNOWN]
