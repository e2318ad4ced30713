"""Errors of the store."""


class StoreError(Exception):
    """The database cannot do what was asked; the message names what, and what to do."""


class FullDiskError(StoreError):
    """The server's disk is full."""


class NotStoredError(StoreError):
    """There is no such thing in the store."""


class AgedError(StoreError):
    """Retention removed it."""


class IngestError(StoreError):
    """A record cannot be stored."""


class ConflictError(IngestError):
    """The run is stored with other content."""


class NotQuarantinedError(StoreError):
    """The run is not in quarantine."""
