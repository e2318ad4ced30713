"""What goes wrong when the dashboard is served."""


class DashboardError(Exception):
    """The dashboard cannot be served; the message names the thing and the way out."""
