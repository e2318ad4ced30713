"""What goes wrong when the dashboard is served, or reads through a server."""

from roofwatch.db.errors import StoreError


class DashboardError(Exception):
    """The dashboard cannot be served; the message names the thing and the way out."""


class UnreadServerError(StoreError):
    """The server that the dashboard reads through cannot be asked, or refuses; likewise."""
