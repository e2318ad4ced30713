"""Tell physical machines of one runner class apart, without naming them."""

import hashlib
import os
import platform

HIDE_VARIABLE = "ROOFWATCH_HIDE_MACHINE"
"""Environment variable: with any value, records do not tell machines apart."""
_DIGITS = 12


def machine_hash(project: str, uuid: str | None) -> str | None:
    """Hash host and device with the project as salt; None if that is forbidden.

    The same machine has another hash in another project, so that records of two projects cannot be
    joined by it.

    Args:
        project: Salt.
        uuid: Of the device; None on a CPU.
    """
    if os.environ.get(HIDE_VARIABLE):
        return None
    text = "\n".join((project, platform.node(), uuid or ""))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
