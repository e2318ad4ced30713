"""The key of all results of one case and implementation."""

CaseKey = tuple[str, str]
"""Case id and implementation."""


def kernel_of(case_id: str) -> str:
    """The kernel of a case: the first part of its ID."""
    return case_id.partition("/")[0]
