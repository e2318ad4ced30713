"""What the analysis found in a case is stored and read back without a difference."""

import math
from dataclasses import fields, replace
from datetime import date

from roofwatch.ci.history.documents import from_case_analyses, to_case_analysis
from roofwatch.ci.history.finding import Status, TrendFinding
from roofwatch.ci.history.history import SeriesAnalysis
from tests.builders import PROJECT, make_change_point, make_series_key


def test_an_analysis_is_read_back_as_it_was() -> None:
    finding = TrendFinding.at_commit(make_change_point(), Status.UNCONFIRMED, ())
    key = make_series_key()
    analysis = SeriesAnalysis([replace(finding, log_error=math.inf, measured_on=date(2026, 1, 2))])
    analysis.population.add(key)
    analysis.series_by_date.update({date(2026, 1, 2): 2, date(2026, 1, 3): 1})

    quiet = SeriesAnalysis()
    read = from_case_analyses([to_case_analysis(1, analysis), to_case_analysis(2, quiet)])

    assert read.findings == analysis.findings
    assert read.series_by_date == analysis.series_by_date
    assert read.population.keys == [key]
    assert read.population.count_on(PROJECT, key.runner_class) == 1


def test_every_field_of_an_analysis_is_stored() -> None:
    """A new field needs a column or a place in the documents."""
    names = {field.name for field in fields(SeriesAnalysis)}

    assert names == {"findings", "population", "series_by_date"}
