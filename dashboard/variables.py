"""Variables of the environment that tell the server process what to serve."""

PARENT_VARIABLE = "ROOFWATCH_DASHBOARD_PARENT"
SERVER_VARIABLE = "ROOFWATCH_DASHBOARD_SERVER"
"""The URL of the server that is read through, for this process alone; without it the settings say what is read."""
NO_SERVER = ""
"""The database is read whatever server the settings name."""
