"""Which system calls a candidate kernel may not make: a filter of seccomp."""

import ctypes
import errno
import os

_DENIED = (
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "kcmp",
    "pidfd_open",
    "pidfd_getfd",
    "socket",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsmount",
    "mount_setattr",
    "open_by_handle_at",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "keyctl",
    "add_key",
    "request_key",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "swapon",
    "swapoff",
    "sched_setscheduler",
    "sched_setattr",
    "sched_setaffinity",
)
_IGNORED = ("setsid", "setpgid")
"""Answered with success and not done: the judge stops and kills the process group as a whole."""
PR_SET_PDEATHSIG = 1
_CLONE_ANY_NAMESPACE = 0x7E020000
_SCMP_ALLOW = 0x7FFF0000
_SCMP_ERRNO = 0x00050000
_NOT_EQUAL = 1
_EQUAL = 4
_MASKED_EQUAL = 7


class _Argument(ctypes.Structure):
    """libseccomp's scmp_arg_cmp."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def filter_system_calls(*, may_signal: bool) -> None:
    """Deny what no kernel needs; everything else is allowed, because compilers run in here too.

    Args:
        may_signal: Whether only processes of the sandbox can be named.
    """
    try:
        seccomp = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise OSError(
            errno.ENOENT, "libseccomp is not installed (Debian: apt install libseccomp2)"
        ) from None
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(_SCMP_ALLOW)))

    def answer(name: str, error: int, *conditions: _Argument) -> None:
        """Let a system call fail with an error, under conditions on its arguments."""
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # this architecture or this library has no such call
            return
        array = (_Argument * len(conditions))(*conditions)
        action = ctypes.c_uint32(_SCMP_ERRNO | error)
        failed = seccomp.seccomp_rule_add_array(rules, action, number, len(conditions), array)
        if failed:
            raise OSError(-failed, f"seccomp rule for {name}: {os.strerror(-failed)}")

    for name in _DENIED:
        answer(name, errno.EPERM)
    for name in _IGNORED:
        answer(name, 0)
    answer("clone3", errno.ENOSYS)  # its flags cannot be seen; the C library then uses clone
    for bit in range(32):
        flag = 1 << bit
        if flag & _CLONE_ANY_NAMESPACE:
            answer("clone", errno.EPERM, _Argument(0, _MASKED_EQUAL, flag, flag))
    answer("prctl", errno.EPERM, _Argument(0, _EQUAL, PR_SET_PDEATHSIG, 0))
    if not may_signal:
        for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "pidfd_send_signal"):
            answer(name, errno.EPERM, _Argument(0, _NOT_EQUAL, os.getpid(), 0))
    failed = seccomp.seccomp_load(rules)
    if failed:
        raise OSError(-failed, os.strerror(-failed))
