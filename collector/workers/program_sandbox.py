"""Isolate a whole program of roofwatch, which may isolate candidates of its own: namespaces, a root
that is read-only except for some folders, and nothing of what the user or a daemon would do for it.

The layers that would keep an inner sandbox from working (Landlock, seccomp) are those of
`sandbox.py`. Sources: the manual pages namespaces(7), mount_setattr(2) and netdevice(7).
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from roofwatch.collector.workers.sandbox import (
    bind_over,
    enter_namespaces,
    mount_private,
    protect_root,
)

_DAEMONS = (
    "/run/containerd",
    "/run/crio",
    "/run/dbus",
    "/run/docker.sock",
    "/run/podman",
    "/run/user",
)
"""Sockets of programs that start others on request, outside of every namespace."""
_PATH_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  of this namespace alone
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_NAME_BYTES = 16


def isolate_program(writable: Sequence[str], *, home: Path, has_network: bool) -> None:
    """Isolate this process for good; the caller continues as the first of a PID namespace, so all
    of its processes end with it.

    Args:
        writable: Folders that it may write to; everything else is read-only.
        home: Of the user. Its hidden files and folders, such as `.ssh` and `.netrc`, become empty,
            except where Python, `PATH` and the writable folders are.
        has_network: Keep the network of the machine; otherwise only loopback is left.

    Raises:
        OSError: the kernel or the container denies it.
    """
    needed_paths = [*writable, *_program_paths()]
    enter_namespaces(has_network=has_network)
    protect_root(writable)
    for path in (*_private_entries(home, needed_paths), *map(Path, _DAEMONS)):
        _hide(path)
    mount_private(
        kind="tmpfs",
        mount_point=_SHARED_MEMORY,
        options="mode=1777",
    )
    mount_private(
        kind="proc",
        mount_point="/proc",
        options=None,
    )
    if not has_network:
        _start_loopback()
    os.chdir(writable[0])


def _program_paths() -> Iterator[str]:
    """Where Python and the programs and libraries of this process may lie."""
    yield from (sys.prefix, sys.base_prefix, *sys.path)
    for name in _PATH_VARIABLES:
        yield from os.environ.get(name, "").split(os.pathsep)


def _private_entries(home: Path, needed_paths: Sequence[str]) -> Iterator[Path]:
    """Hidden files and folders of a home that contain none of some paths."""
    needed = [Path(path).resolve() for path in needed_paths if path]
    try:
        entries = sorted(home.resolve().glob(".*"))
    except OSError:  # of another user
        return
    for entry in entries:
        target = entry.resolve()
        if not any(path.is_relative_to(target) for path in needed):
            yield target


def _hide(path: Path) -> None:
    """Show an empty folder or file in place of one, if it exists."""
    if path.is_dir():
        mount_private(
            kind="tmpfs",
            mount_point=str(path),
            options="mode=555,size=4k",
        )
    elif path.exists():
        bind_over("/dev/null", str(path))


def _start_loopback() -> None:
    """Ranks of one machine reach each other over loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack(f"{_NAME_BYTES}sh", b"lo", _IFF_UP)
        fcntl.ioctl(probe, _SIOCSIFFLAGS, request.ljust(40, b"\0"))
