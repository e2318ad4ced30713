import pytest

from roofwatch.collector.device.health import describe_health

SOUND = {
    "performance_state": 0.0,
    "ecc_corrected_errors": 0.0,
    "ecc_uncorrected_errors": 0.0,
    "pcie_generation": 5.0,
    "pcie_width": 16.0,
    "pcie_width_max": 16.0,
    "nvlink_count": 18.0,
    "rows_remapped": 0.0,
    "row_remap_pending": 0.0,
    "row_remap_failed": 0.0,
}


@pytest.mark.parametrize(
    ("health", "text"),
    [
        (SOUND, "P0, PCIe 5 x16, 18 NVLinks, no ECC errors, no remapped rows"),
        (
            {"performance_state": 8.0, "pcie_width": 8.0, "pcie_width_max": 16.0},
            "P8, PCIe x8 of x16",
        ),
        (
            {
                "ecc_corrected_errors": 12.0,
                "ecc_uncorrected_errors": 1.0,
                "rows_remapped": 5.0,
                "row_remap_pending": 1.0,
                "row_remap_failed": 1.0,
            },
            "12 corrected and 1 uncorrected ECC errors, 5 remapped rows (one waits for a reset of "
            "the GPU) (a remapping failed)",
        ),
        ({}, ""),
    ],
)
def test_the_state_of_a_device_is_said_with_its_numbers(
    health: dict[str, float], text: str
) -> None:
    assert describe_health(health) == text
