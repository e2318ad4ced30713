"""All questions that one may ask the store: each takes a Session and gives values."""

from roofwatch.db.access.audit import list_entries
from roofwatch.db.artefacts import list_artefacts, read_artefact
from roofwatch.db.bisections.store import list_bisections, read_bisection, read_newest_bisection
from roofwatch.db.judged.judgements import list_regressions, list_triaged
from roofwatch.db.judged.triage import read_triage
from roofwatch.db.reading.case_history import read_case_history
from roofwatch.db.reading.coverage import list_runner_standings
from roofwatch.db.reading.facets import read_facets
from roofwatch.db.reading.fleet import list_case_costs, list_fleet_runs, list_kernel_costs, read_run_energies
from roofwatch.db.reading.pairs import list_newest_calibrations, list_pairs
from roofwatch.db.reading.records import load_record
from roofwatch.db.reading.runs import list_commits, list_projects, list_runs, run_detail
from roofwatch.db.reading.series import list_series_keys, read_series
from roofwatch.db.reading.trend import list_window_ends, read_trend

__all__ = [
    "list_artefacts",
    "list_bisections",
    "list_case_costs",
    "list_commits",
    "list_entries",
    "list_fleet_runs",
    "list_kernel_costs",
    "list_newest_calibrations",
    "list_pairs",
    "list_projects",
    "list_regressions",
    "list_runner_standings",
    "list_runs",
    "list_series_keys",
    "list_triaged",
    "list_window_ends",
    "load_record",
    "read_artefact",
    "read_bisection",
    "read_case_history",
    "read_facets",
    "read_newest_bisection",
    "read_run_energies",
    "read_series",
    "read_trend",
    "read_triage",
    "run_detail",
]
