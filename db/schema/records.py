"""All tables that hold records and what was judged of them. Columns bear the names of the record's fields; what a
record lists in order has a `position`.

What many runs share has a row of its own (project, environment, commit, case, series, machine code); everything else
hangs on its run and goes with it. Constraints are named, so that a migration can speak of them.
"""

from roofwatch.db.schema.judgements import ChangePointRow, JudgedHistoryRow, RegressionRow, StandingRow
from roofwatch.db.schema.results import (
    AccuracyRow,
    CompilationRow,
    CountersRow,
    MeasurementRow,
    ProfileActivityRow,
    ProfileRow,
    SampleSetRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from roofwatch.db.schema.runs import (
    CaseRow,
    CaseVersionRow,
    CeilingRow,
    CommitRow,
    EnvironmentRow,
    ProjectRow,
    RunRow,
)
from roofwatch.db.schema.table import Base

__all__ = [
    "AccuracyRow",
    "Base",
    "CaseRow",
    "CaseVersionRow",
    "CeilingRow",
    "ChangePointRow",
    "CommitRow",
    "CompilationRow",
    "CountersRow",
    "EnvironmentRow",
    "JudgedHistoryRow",
    "MeasurementRow",
    "ProfileActivityRow",
    "ProfileRow",
    "ProjectRow",
    "RegressionRow",
    "RunRow",
    "SampleSetRow",
    "SeriesRow",
    "StandingRow",
    "StaticFactRow",
    "TensorErrorRow",
]
