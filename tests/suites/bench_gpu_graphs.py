"""A launch that waits for the device, which no CUDA graph can hold, and one after it."""

import torch
from plus_one import declare


def _waits(x):
    torch.cuda.synchronize()
    return x + 1


waits_for_the_device = declare("waits_for_the_device", _waits, n=2**20)
works_after_it = declare("works_after_it", lambda x: x + 1, n=2**20)
