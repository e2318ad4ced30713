import pytest

from roofwatch.ci.changepoint.chance import critical_t, two_sided_p


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (10, 2.2281), (30, 2.0423)],
)
def test_the_critical_values_are_those_of_the_printed_table(degrees: int, expected: float) -> None:
    assert critical_t(degrees, 0.95) == pytest.approx(expected, abs=5e-5)


def test_one_degree_of_freedom_is_the_cauchy_distribution() -> None:
    assert two_sided_p(1.0, 1) == pytest.approx(0.5)


@pytest.mark.parametrize("degrees", [1, 2, 3, 8, 25])
def test_the_probability_falls_from_one_to_zero(degrees: int) -> None:
    probabilities = [two_sided_p(t, degrees) for t in (0.0, 0.5, 1.0, 3.0, 10.0, 1e6)]

    assert probabilities[0] == 1.0
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[-1] < 1e-5
    assert two_sided_p(float("inf"), degrees) == 0.0


def test_no_degrees_of_freedom_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 degree"):
        two_sided_p(1.0, 0)
