"""Reuses a buffer for the intermediate result."""

import torch


buffers = {}


def candidate(x, scale):
    y = buffers.setdefault(x.shape, torch.empty(x.shape))
    torch.sub(x, x.mean(dim=-1, keepdim=True), out=y)
    return y.square().mul_(scale)
