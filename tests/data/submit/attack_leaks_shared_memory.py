"""Leaves System V shared memory, which outlives its process."""

import ctypes

import torch

def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
segment = libc.shmget(0x7F24, ctypes.c_size_t(2**27), 0o1600)
address = libc.shmat(segment, None, 0)
if address and address != 2**64 - 1:
    ctypes.memset(address, 1, 2**27)
candidate = right
