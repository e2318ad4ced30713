"""Numbers as people write them."""

import pytest

from roofwatch.model.metrics import format_ns, metric


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (999.4, "999 ns"),
        (999.6, "1 µs"),
        (999_600.0, "1 ms"),
        (1_234_567.0, "1.23 ms"),
        (999_960_000.0, "1 s"),
        (2.997e9, "3 s"),
        (5_432e9, "5,430 s"),
        (0.0, "0 ns"),
    ],
)
def test_a_time_has_three_digits_and_no_exponent(value_ns: float, text: str) -> None:
    """Comments had `1e+03 µs`."""
    assert format_ns(value_ns) == text


def test_a_rate_has_no_exponent() -> None:
    assert metric("flop_per_s").format(9.999e14) == "1 PFLOP/s"
    assert metric("flop_per_s").format(1.6e15) == "1.6 PFLOP/s"
