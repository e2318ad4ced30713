"""What the kernels refuse."""


class KernelError(ValueError):
    """A call that a kernel cannot serve, or a name that no kernel has; the message names the way out."""
