"""The error of a kernel that rejects its operands."""


class KernelError(ValueError):
    """A kernel rejects its operands. The message says how to fix it."""
