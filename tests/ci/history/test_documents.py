"""What the analysis found in a case is stored and read back without a difference."""

import math
from dataclasses import fields, replace
from datetime import date

from roofwatch.ci.history.controls import ControlLine
from roofwatch.ci.history.documents import from_case_analyses, to_case_analysis
from roofwatch.ci.history.finding import TrendFinding
from roofwatch.ci.history.history import SeriesAnalysis
from roofwatch.model.verdict import Status
from tests.builders import PROJECT, make_change_point, make_commit_ref, make_series_key


def test_an_analysis_is_read_back_as_it_was() -> None:
    finding = TrendFinding.at_commit(make_change_point(), Status.UNCONFIRMED, ())
    key = make_series_key()
    analysis = SeriesAnalysis([replace(finding, log_error=math.inf, measured_on=date(2026, 1, 2))])
    analysis.population.add(key)
    analysis.series_by_date.update({date(2026, 1, 2): 2, date(2026, 1, 3): 1})

    control = ControlLine(key, (make_commit_ref(1), make_commit_ref(2)), (10.0, 12.0))
    analysis.controls.subjects.add((key.case_id, key.implementation))
    analysis.controls.add_line(control)

    quiet = SeriesAnalysis()
    read = from_case_analyses([to_case_analysis(1, analysis), to_case_analysis(2, quiet)])

    assert read.findings == analysis.findings
    assert read.series_by_date == analysis.series_by_date
    assert read.population.keys == [key]
    assert read.controls.subjects == analysis.controls.subjects
    (read_control,) = read.controls.all
    assert read_control.series == key
    assert list(read_control.commits) == list(control.commits)
    assert list(read_control.values) == [10.0, 12.0]
    assert read.population.count_on(PROJECT, key.runner_class) == 1


def test_every_field_of_an_analysis_is_stored() -> None:
    """A new field needs a column or a place in the documents."""
    names = {field.name for field in fields(SeriesAnalysis)}

    assert names == {"findings", "population", "series_by_date", "controls"}
