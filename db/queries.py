"""All questions that one may ask the store: each takes a Session and gives values."""

from db.artefacts import list_artefacts, read_artefact
from db.audit import list_entries
from db.bisection import list_bisections, read_bisection
from db.case_history import read_case_history
from db.coverage import list_runner_standings
from db.facets import read_facets
from db.fleet import list_case_costs, list_fleet_runs, list_kernel_costs, read_run_energies
from db.judgements import list_regressions
from db.pairs import list_pairs
from db.records import load_record
from db.runs import find_run, list_commits, list_projects, list_runs, run_detail
from db.series import list_series_keys, read_series
from db.triage import read_triage

__all__ = [
    "find_run",
    "list_artefacts",
    "list_bisections",
    "list_case_costs",
    "list_commits",
    "list_entries",
    "list_fleet_runs",
    "list_kernel_costs",
    "list_pairs",
    "list_projects",
    "list_regressions",
    "list_runner_standings",
    "list_runs",
    "list_series_keys",
    "load_record",
    "read_artefact",
    "read_bisection",
    "read_case_history",
    "read_facets",
    "read_run_energies",
    "read_series",
    "read_triage",
    "run_detail",
]
