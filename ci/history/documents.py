"""What the analysis found in a case as documents, to be stored and read back."""

from collections.abc import Sequence
from datetime import date

import numpy as np
from pydantic import TypeAdapter

from roofwatch.ci.history.controls import ControlLine
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.history.history import SeriesAnalysis
from roofwatch.model.case_analysis import CaseAnalysis
from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import SeriesKey

_FINDINGS = TypeAdapter(list[TrendFinding])
_SERIES = TypeAdapter(list[SeriesKey])
_CONTROLS = TypeAdapter(tuple[list[CaseKey], list[ControlLine]])
_NONE = b"[]"
# days since 1970
_DAY = np.dtype("<i4")


def to_case_analysis(row_id: int, analysis: SeriesAnalysis) -> CaseAnalysis:
    days = [day.toordinal() for day in sorted(analysis.series_by_date.elements())]
    return CaseAnalysis(
        case_id=row_id,
        findings=_FINDINGS.dump_json(analysis.findings),
        series=_SERIES.dump_json(analysis.population.keys),
        days=np.array(days, dtype=_DAY).tobytes(),
        controls=_CONTROLS.dump_json((sorted(analysis.controls.subjects), analysis.controls.all)),
    )


def from_case_analyses(analyses: Sequence[CaseAnalysis]) -> SeriesAnalysis:
    """Put the analyses of all cases of a project together."""
    whole = SeriesAnalysis()
    for analysis in analyses:
        # most cases changed in nothing: their findings need no parser
        if analysis.findings != _NONE:
            whole.findings += _FINDINGS.validate_json(analysis.findings)
        for key in _SERIES.validate_json(analysis.series):
            whole.population.add(key)
        subjects, lines = _CONTROLS.validate_json(analysis.controls)
        whole.controls.subjects.update(subjects)
        for line in lines:
            whole.controls.add_line(line)
    # one array for all cases: there may be millions of days
    packed_days = b"".join(analysis.days for analysis in analyses)
    days = np.frombuffer(packed_days, _DAY)
    ordinals, counts = np.unique(days, return_counts=True)
    for ordinal, count in zip(ordinals.tolist(), counts.tolist(), strict=True):
        whole.series_by_date[date.fromordinal(ordinal)] = count
    return whole
