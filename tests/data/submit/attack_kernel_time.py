"""A child spends its time in a system call that cannot be stopped."""

import mmap
import os
import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


go, ready = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(ready)
    while True:
        if not os.read(go, 1):
            os._exit(0)
        m = mmap.mmap(-1, 2**27, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
        m.close()


def candidate(x, scale):
    result = right(x, scale)
    os.write(ready, b"x")
    os.sched_yield()
    return result
