"""What goes wrong in the store."""


class StoreError(Exception):
    """The database cannot do what it was asked; the message names the thing and the way out."""


class FullDiskError(StoreError):
    """The server's disk has no room for it."""


class NotStoredError(StoreError):
    """There is no such thing in the store."""


class AgedError(StoreError):
    """What was asked for went by the policy of what is kept."""


class IngestError(StoreError):
    """A record cannot be stored."""


class ConflictError(IngestError):
    """The run is stored with other content."""
