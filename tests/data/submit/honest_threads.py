"""Uses threads of torch and of Python."""

from concurrent.futures import ThreadPoolExecutor

import torch

torch.set_num_threads(2)
pool = ThreadPoolExecutor(2)


def part(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return y.mul_(y).mul_(scale)


def candidate(x, scale):
    return torch.cat(list(pool.map(lambda rows: part(rows, scale), x.chunk(2))))
