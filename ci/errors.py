"""What goes wrong where results are delivered."""


class GitHubError(Exception):
    """GitHub cannot be told; the message says what it answered, and the way out."""
