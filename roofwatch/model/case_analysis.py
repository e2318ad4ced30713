"""What the analysis found in the series of one case, as it is stored."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CaseAnalysis:
    case_id: int
    """Row id of the case."""
    findings: bytes
    """JSON: a list of documents."""
    series: bytes
    """The judged series, as `findings`."""
    days: bytes
    """Ordinal of each day of each judged series, little-endian in four bytes."""
    controls: bytes
    """JSON: the rows of libraries and their values."""
