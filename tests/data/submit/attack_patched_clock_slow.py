"""Is slower and patches the clock of its process."""

import time

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


time.perf_counter_ns = lambda: 0


def candidate(x, scale):
    right(x, scale)
    return right(x, scale)
