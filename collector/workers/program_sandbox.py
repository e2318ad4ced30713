"""Isolate a whole program of roofwatch, which may isolate candidates of its own: namespaces, and a
root that is read-only except for some folders.

The layers that would keep an inner sandbox from working (Landlock, seccomp) are those of
`sandbox.py`. Sources: the manual pages namespaces(7), mount_setattr(2) and netdevice(7).
"""

import fcntl
import os
import socket
import struct
from collections.abc import Sequence

from roofwatch.collector.workers.sandbox import (
    enter_namespaces,
    mount_private,
    protect_root,
)

_SHARED_MEMORY = "/dev/shm"  # noqa: S108  of this namespace alone
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_NAME_BYTES = 16


def isolate_program(writable: Sequence[str], *, has_network: bool) -> None:
    """Isolate this process for good; the caller continues as the first of a PID namespace, so all
    of its processes end with it.

    Args:
        writable: Folders that it may write to; everything else is read-only.
        has_network: Keep the network of the machine; otherwise only loopback is left.

    Raises:
        OSError: the kernel or the container denies it.
    """
    enter_namespaces(has_network=has_network)
    protect_root(writable)
    mount_private(kind="tmpfs", mount_point=_SHARED_MEMORY, options="mode=1777")
    mount_private(kind="proc", mount_point="/proc", options=None)
    if not has_network:
        _start_loopback()
    os.chdir(writable[0])


def _start_loopback() -> None:
    """Ranks of one machine reach each other over loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack(f"{_NAME_BYTES}sh", b"lo", _IFF_UP)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, request.ljust(40, b"\0"))
