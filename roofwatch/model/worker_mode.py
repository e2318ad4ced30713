"""What a worker process does; apart from the messages, so that starting one loads no pydantic."""

from enum import StrEnum


class Mode(StrEnum):
    DEVICE = "device"
    """Runs kernels on the run's device, and compiles."""
    INTERPRETER = "interpreter"
    """Runs Triton code in its interpreter on the CPU, to check accuracy; never timed."""
