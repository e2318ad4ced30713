"""What goes wrong in the collector itself. A kernel that fails is an outcome, not one of these."""


class CollectorError(Exception):
    """The collector cannot do what it was asked; the message names the thing and the way out."""


class RecordError(CollectorError):
    """A file is not a record that this version can read or write."""


class JournalError(CollectorError):
    """A run cannot be kept while it is measured, or not gone on with."""


class SpoolError(CollectorError):
    """Records cannot be kept for a server, or not sent to it at all."""


class SuiteError(CollectorError):
    """A benchmark file cannot be loaded."""


class TimerError(CollectorError):
    """A timer or cache state that was asked for is not to be had here."""


class GitError(CollectorError):
    """A commit or a repository cannot be read."""


class ToolchainError(CollectorError):
    """A program that belongs to a compiler is not there, or does not work."""
