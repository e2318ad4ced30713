"""Errors of delivering results."""


class GitHubError(Exception):
    """GitHub refuses or does not answer; the message says why, and what to do."""


class UncertainError(GitHubError):
    """It is unknown whether GitHub carried out a request."""


class AlertError(Exception):
    """Rules or channels of alerts cannot be used; the message has the place, and never an address."""
