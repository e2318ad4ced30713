"""The key of all results of one case and implementation."""

CaseKey = tuple[str, str]
"""Case id and implementation."""
