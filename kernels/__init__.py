"""The bundled GPU kernels, their shapes and their references."""


class KernelError(ValueError):
    """A kernel rejects its operands. The message says how to fix it."""
