"""What NVML reported of links, memory errors and performance state before a run, in words."""

from collections.abc import Iterator, Mapping


def describe_health(health: Mapping[str, float]) -> str:
    """List what the device reported, `P0, PCIe 5 x16, 18 NVLinks, no ECC errors`; empty for none.

    A link narrower than it could be, errors and remapped rows are given with their numbers.
    """
    return ", ".join(_parts(health))


def _parts(health: Mapping[str, float]) -> Iterator[str]:
    """Phrases for the facts of links and memory that were read."""
    if "performance_state" in health:
        yield f"P{health['performance_state']:.0f}"
    if "pcie_width" in health:
        yield _pcie(health)
    if "nvlink_count" in health:
        yield f"{health['nvlink_count']:.0f} NVLinks"
    if "ecc_corrected_errors" in health or "ecc_uncorrected_errors" in health:
        yield _ecc(health)
    if "rows_remapped" in health:
        yield _remapped_rows(health)


def _pcie(health: Mapping[str, float]) -> str:
    """Width of the PCIe link, and the full width if it trained narrower."""
    generation = ""
    if "pcie_generation" in health:
        generation = f" {health['pcie_generation']:.0f}"
    width = health["pcie_width"]
    text = f"PCIe{generation} x{width:.0f}"
    widest = health.get("pcie_width_max", width)
    if widest <= width:
        return text
    return f"{text} of x{widest:.0f}"


def _ecc(health: Mapping[str, float]) -> str:
    """Errors of the memory since the driver was loaded."""
    corrected = health.get("ecc_corrected_errors", 0.0)
    uncorrected = health.get("ecc_uncorrected_errors", 0.0)
    if not corrected and not uncorrected:
        return "no ECC errors"
    return f"{corrected:.0f} corrected and {uncorrected:.0f} uncorrected ECC errors"


def _remapped_rows(health: Mapping[str, float]) -> str:
    """Rows of device memory that were replaced by spare ones."""
    row_count = health["rows_remapped"]
    text = "no remapped rows"
    if row_count:
        text = f"{row_count:.0f} remapped rows"
    if health.get("row_remap_pending"):
        text += " (one waits for a reset of the GPU)"
    if health.get("row_remap_failed"):
        text += " (a remapping failed)"
    return text
