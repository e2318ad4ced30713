import pytest

from roofwatch.collector.record.metrics import format_bytes, format_ns, metric


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5 ns"), (999, "999 ns"), (1_000, "1 µs"), (1_234_567, "1.23 ms"), (5e9, "5 s"), (0, "0 ns")],
)
def test_times_are_formatted_with_a_suitable_unit(value: float, text: str) -> None:
    assert format_ns(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 B"), (1023, "1023 B"), (49152, "48 KiB"), (3 * 2**30, "3 GiB")])
def test_bytes_are_written_in_powers_of_1024(value: float, text: str) -> None:
    assert format_bytes(value) == text


def test_rates_and_shares_carry_their_unit() -> None:
    assert metric("flop_per_s").format(1.5e12) == "1.5 TFLOP/s"
    assert metric("memory_bytes_per_s").format(3.35e12) == "3.35 TB/s"
    assert metric("utilisation").format(0.876) == "87.6%"
    assert metric("joules_per_launch").format(0.0123) == "12.3 mJ"
    assert metric("joules_per_launch").format(4e-7) == "400 nJ"
    assert metric("registers").format(255) == "255"


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(KeyError, match="median_ns"):
        metric("speed")
