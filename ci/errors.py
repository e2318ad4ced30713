"""What goes wrong where results are delivered."""


class GitHubError(Exception):
    """GitHub cannot be told; the message says what it answered, and the way out."""


class AlertError(Exception):
    """Rules or channels of alerts cannot be used; the message says where, and holds no address."""
