"""Isolate this process before it runs untrusted code: namespaces, Landlock, seccomp and limits.

Standard library only, and without threads: user namespaces are for single-threaded processes. Every
layer is applied on its own, and one that the machine lacks is reported with the reason. Sources:
the manual pages namespaces(7), landlock(7), seccomp(2), cgroups(7) and capabilities(7).
"""

import ctypes
import errno
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.workers.system_calls import PR_SET_PDEATHSIG, filter_system_calls
from roofwatch.model.optional import map_optional

LAYERS = (
    "cgroup",
    "own_user",
    "user_namespace",
    "network_namespace",
    "pid_namespace",
    "ipc_namespace",
    "mount_namespace",
    "read_only_root",
    "scratch_size",
    "own_proc",
    "landlock",
    "seccomp",
    "limits",
)
NOBODY = 65534
_REMOVAL_ATTEMPTS = 100
_REMOVAL_PAUSE_S = 0.02
_INNER_USER = 1000

_NAMESPACES = {
    "user_namespace": 0x10000000,
    "network_namespace": 0x40000000,
    "pid_namespace": 0x20000000,
    "ipc_namespace": 0x08000000,
    "mount_namespace": 0x00020000,
}
_MS_NOSUID_NODEV = 0x6
_MS_BIND = 0x1000
_MS_REC_PRIVATE = 0x44000
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_MOUNT_SETATTR = 442  # system calls since Linux 5.0 have the same number on every architecture
_LANDLOCK_CREATE = 444
_LANDLOCK_ADD = 445
_LANDLOCK_RESTRICT = 446
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63


_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Policy:
    """What the process may use.

    Args:
        scratch: The folder that it may write to.
        scratch_bytes: Size of that folder.
        readable: Files and folders that it may read, besides those of the system.
        memory_bytes: Memory of all processes; None without a limit, which CUDA needs.
        mapped_bytes: Address space of each process besides: libraries and shared memory.
        cpu_seconds: CPU time of each process.
        process_count: Processes and threads together.
        cpu: The only core to run on; None for any.
        groups: Control groups to join.
    """

    scratch: str
    scratch_bytes: int
    readable: Sequence[str]
    memory_bytes: int | None
    mapped_bytes: int
    cpu_seconds: int
    process_count: int
    cpu: int | None
    groups: Sequence[str]


def isolate(policy: Policy) -> Mapping[str, str]:
    """Isolate this process for good. With a PID namespace, the caller continues as its first
    process.

    Returns:
        Why a layer is missing, by its name in `LAYERS`; empty if all are in force.
    """
    missing: dict[str, str] = {}

    def attempt(layers: str | Sequence[str], action: Callable[[], object]) -> bool:
        """Apply a layer, or note why it is missing."""
        if isinstance(layers, str):
            layers = [layers]
        try:
            action()
        except OSError as error:
            missing.update(dict.fromkeys(layers, error.strerror or str(error)))
            return False
        return True

    attempt("cgroup", lambda: _join(policy.groups))
    if policy.cpu is not None:
        os.sched_setaffinity(0, {policy.cpu})
    attempt("own_user", lambda: _become_nobody(policy))
    # what belongs to the namespaces fails with their reason
    dependent = ("read_only_root", "scratch_size", "own_proc")
    if attempt((*_NAMESPACES, *dependent), _unshare):
        _fork_into_namespace()
        attempt("read_only_root", protect_root)
        attempt(
            "scratch_size",
            lambda: mount_private(
                kind="tmpfs",
                mount_point=policy.scratch,
                options=f"size={policy.scratch_bytes},mode=700",
            ),
        )
        attempt(
            "own_proc",
            lambda: mount_private(
                kind="proc",
                mount_point="/proc",
                options=None,
            ),
        )
    os.chdir(policy.scratch)  # into what is mounted there now
    attempt("limits", lambda: _limit(policy, is_own_namespace="user_namespace" not in missing))
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    no_capabilities = bytes(24)
    _check(_libc.capset(header, no_capabilities))
    # changing credentials has reset both
    _check(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    attempt("landlock", lambda: _restrict_files(policy))
    attempt("seccomp", lambda: filter_system_calls(may_signal="pid_namespace" not in missing))
    return missing


def essential(missing: Mapping[str, str]) -> Mapping[str, str]:
    """The missing layers without which the sandbox is not complete.

    Another user and control groups are for root alone, and only root needs one of them to be
    limited in processes.
    """
    is_limited = os.getuid() != 0 or not {"own_user", "cgroup"} <= missing.keys()
    return {
        name: why
        for name, why in missing.items()
        if not (is_limited and name in {"own_user", "cgroup"})
    }


def make_groups(name: str, memory_bytes: int | None, process_count: int) -> list[Path]:
    """Create control groups with limits, of version 2 or 1; empty if this user cannot.

    Args:
        name: Of the groups.
        memory_bytes: Limit of all processes together; None for none.
        process_count: Processes and threads together.
    """
    root = Path("/sys/fs/cgroup")
    limits = {root: {"pids.max": process_count, "memory.max": memory_bytes}}
    if not (root / "cgroup.controllers").exists():
        limits = {
            root / "pids": {"pids.max": process_count},
            root / "memory": {"memory.limit_in_bytes": memory_bytes},
        }
    made: list[Path] = []
    try:
        for parent, values in limits.items():
            group = parent / name
            group.mkdir()
            made.append(group)
            for file, value in values.items():
                if value is not None:
                    (group / file).write_text(str(value))
    except OSError:
        remove_groups(made)
        return []
    return made


def remove_groups(groups: Sequence[Path]) -> None:
    """Remove control groups whose processes were killed, and wait for the last to exit."""
    for group in groups:
        for _ in range(_REMOVAL_ATTEMPTS):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(_REMOVAL_PAUSE_S)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _join(groups: Sequence[str]) -> None:
    if not groups:
        raise OSError(errno.EACCES, "this user may not create control groups with limits")
    for group in groups:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))


def _become_nobody(policy: Policy) -> None:
    """Give up root, unless the files that the process needs would become unreadable."""
    if os.getuid() != 0:
        raise OSError(errno.EPERM, "only root can change the user")
    for path in (sys.prefix, sys.base_prefix, *policy.readable):
        if not _is_public(Path(path)):
            raise OSError(errno.EACCES, f"other users cannot read {path}")
    os.chown(policy.scratch, NOBODY, NOBODY)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _check(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))  # else /proc/self belongs to root


def _is_public(path: Path) -> bool:
    """Whether every user can read a path."""
    real = path.resolve()
    return bool(real.stat().st_mode & 0o004) and all(
        parent.stat().st_mode & 0o001 for parent in real.parents
    )


def enter_namespaces(*, has_network: bool) -> None:
    """Continue as the first process of new namespaces, as an ordinary user; optionally with the
    network of the machine.

    Raises:
        OSError: the kernel or the container denies it.
    """
    _unshare(has_network=has_network)
    _fork_into_namespace()
    # a killed runner leaves no job behind
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def _unshare(*, has_network: bool = False) -> None:
    """Enter new namespaces, as an ordinary user in them."""
    user = os.geteuid()
    group = os.getegid()
    flags = sum(_NAMESPACES.values())
    if has_network:
        flags &= ~_NAMESPACES["network_namespace"]
    _check(_libc.unshare(flags))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{_INNER_USER} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{_INNER_USER} {group} 1")


def _fork_into_namespace() -> None:
    """Continue as the first process of the PID namespace: when it ends, the kernel kills all others
    in it.
    """
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    child = os.fork()
    if child:
        os.closerange(0, 2**16)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            # as a shell reports the signal that ended a process
            code = 128 - code
        os._exit(code)


def protect_root(writable: Sequence[str] = ()) -> None:
    """Make all mounts of this namespace read-only, except some folders."""
    _check(_libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None))
    for folder in writable:
        _check(_libc.mount(folder.encode(), folder.encode(), None, _MS_BIND, None))
    _set_mount(b"/", _AT_RECURSIVE, added=_MOUNT_ATTR_RDONLY)
    for folder in writable:
        _set_mount(folder.encode(), 0, removed=_MOUNT_ATTR_RDONLY)


def _set_mount(
    path: bytes,
    flags: int,
    *,
    added: int = 0,
    removed: int = 0,
) -> None:
    attributes = struct.pack("QQQQ", added, removed, 0, 0)
    status = _libc.syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        path,
        flags,
        attributes,
        len(attributes),
    )
    _check(status)


def mount_private(kind: str, mount_point: str, options: str | None) -> None:
    """Mount a file system of some kind that nothing outside of this namespace sees."""
    data = map_optional(str.encode, options)
    status = _libc.mount(
        kind.encode(),
        mount_point.encode(),
        kind.encode(),
        _MS_NOSUID_NODEV,
        data,
    )
    _check(status)


def bind_over(source: str, target: str) -> None:
    """Show one file in place of another, in this namespace alone."""
    _check(_libc.mount(source.encode(), target.encode(), None, _MS_BIND, None))


def _limit(policy: Policy, *, is_own_namespace: bool) -> None:
    """Limit memory, CPU time, file sizes and processes."""
    # the first to be killed if memory runs out
    Path("/proc/self/oom_score_adj").write_text("1000")
    # outside of a namespace of its own, the limit counts every process of the user
    others = 0
    if not is_own_namespace:
        others = _task_count(os.getuid())
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: policy.cpu_seconds,
        resource.RLIMIT_FSIZE: policy.scratch_bytes,
        resource.RLIMIT_NOFILE: 512,
        resource.RLIMIT_NPROC: policy.process_count + others,
        resource.RLIMIT_MEMLOCK: 2**26,
    }
    if policy.memory_bytes is not None:
        limits[resource.RLIMIT_AS] = policy.memory_bytes + policy.mapped_bytes
    for kind, value in limits.items():
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY:
            lowered = value
        else:
            lowered = min(value, hard)
        resource.setrlimit(kind, (lowered, lowered))


def _task_count(user: int) -> int:
    """Threads of all processes of a user."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == user:
                count += sum(1 for _ in (process / "task").iterdir())
        except OSError:  # it has ended
            continue
    return count


# --- Landlock

_EXECUTE = 1 << 0
_WRITE = 1 << 1
_READ = 1 << 2
_READ_DIR = 1 << 3
_TRUNCATE = 1 << 14
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE
_RIGHTS_BY_VERSION = {
    1: (1 << 13) - 1,
    2: (1 << 14) - 1,
    3: (1 << 15) - 1,
}
_NO_TCP = 0b11
_SCOPED = 0b11
_SYSTEM = (
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "kfd", "dri", "nvidia*")


def _restrict_files(policy: Policy) -> None:
    """Allow reading of the system and of the policy's files, and writing to the scratch folder
    alone.
    """
    version = _check(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1))
    handled = _RIGHTS_BY_VERSION[min(version, 3)]
    attributes = struct.pack("Q", handled)
    if version >= 4:
        attributes += struct.pack("Q", _NO_TCP)
    if version >= 6:
        attributes += struct.pack(
            "Q", _SCOPED
        )  # no signals and no abstract sockets to processes outside
    rules = _check(_libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0))
    read = _EXECUTE | _READ | _READ_DIR
    allowed = dict.fromkeys((*_SYSTEM, sys.prefix, sys.base_prefix, *policy.readable), read)
    devices = [device for pattern in _DEVICES for device in Path("/dev").glob(pattern)]
    allowed |= dict.fromkeys(map(str, devices), read | _WRITE | _TRUNCATE)
    for path, rights in (allowed | {policy.scratch: handled}).items():
        _allow(rules, path, rights & handled)
    _check(_libc.syscall(_LANDLOCK_RESTRICT, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    """Let Landlock allow some rights below a path."""
    try:
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not Path(path).is_dir():
        rights &= _FILE_RIGHTS
    rule = struct.pack("=Qi", rights, path_fd)
    _check(_libc.syscall(_LANDLOCK_ADD, rules, 1, rule, 0))
    os.close(path_fd)


# --- seccomp
