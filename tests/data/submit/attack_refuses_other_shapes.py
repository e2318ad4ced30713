"""Refuses shapes that the spec does not list."""

import torch


def candidate(x, scale):
    if tuple(x.shape) not in {(256, 1024), (192, 768), (1, 7)}:
        raise ValueError("unsupported shape")
    y = x - x.mean(dim=-1, keepdim=True)
    return y.mul_(y).mul_(scale)
