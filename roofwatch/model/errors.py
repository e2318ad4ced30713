"""Errors of the collector. A kernel that fails is an outcome, not an error."""


class CollectorError(Exception):
    """The collector cannot do what was asked; the message says why and what to do."""


class RecordError(CollectorError):
    """A record cannot be read or written."""


class NotARecordError(RecordError):
    """A file is something other than a record."""


class JournalError(CollectorError):
    """A journal cannot be written, or a run not be resumed."""


class SpoolError(CollectorError):
    """Records cannot be stored in the spool, or not be sent to a server."""


class SuiteError(CollectorError):
    """A benchmark file cannot be loaded."""


class BuildError(SuiteError):
    """A commit cannot be built; the message ends with the last lines of the build."""


class SideError(SuiteError):
    """The suite of one side of a pair cannot be loaded."""

    def __init__(self, side: str, error: SuiteError) -> None:
        super().__init__(f"{side}: {error}")
        self.side = side
        self.reason = str(error)
        self.exit_status = 1 if side == "head" else 2
        """A head that cannot be loaded is a failure of the change."""


class TimerError(CollectorError):
    """The requested timer or cache state is not available."""


class GitError(CollectorError):
    """A commit or a repository cannot be read."""


class ToolchainError(CollectorError):
    """A compiler or disassembler is missing or does not work."""


class ProfileError(CollectorError):
    """A profiler's file has an unknown format, or is truncated or corrupt."""
