"""What goes wrong in the collector itself. A kernel that fails is an outcome, not one of these."""


class CollectorError(Exception):
    """The collector cannot do what it was asked; the message names the thing and the way out."""


class RecordError(CollectorError):
    """A file is not a record that this version can read or write."""


class SuiteError(CollectorError):
    """A benchmark file cannot be loaded."""


class GitError(CollectorError):
    """A commit or a repository cannot be read."""


class ToolchainError(CollectorError):
    """A program that belongs to a compiler is not there, or does not work."""
