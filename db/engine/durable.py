"""Commits that are on disk once they return, for what its sender removes then."""

from __future__ import annotations

COMMITS_TO_DISK = """
set_config(
    'synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'local' ELSE current_setting('synchronous_commit') END,
    true
)
"""
"""SQL, to be selected in a transaction: it does not end before its log is on the server's disk, also where the role,
the database or the server has `synchronous_commit = off`. What asks for more, as for a replica's disk, stays.
"""
