"""All questions that one may ask the store: each takes a Session and gives values."""

from db.judgements import list_regressions
from db.pairs import list_pairs
from db.records import load_record
from db.runs import find_run, list_commits, list_projects, list_runs, run_detail
from db.series import list_series_keys, read_series

__all__ = [
    "find_run",
    "list_commits",
    "list_pairs",
    "list_projects",
    "list_regressions",
    "list_runs",
    "list_series_keys",
    "load_record",
    "read_series",
    "run_detail",
]
