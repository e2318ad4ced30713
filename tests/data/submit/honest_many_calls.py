"""Faster, and written with plain matrix calls."""

import torch


def candidate(x, scale):
    y = torch.addmm(x, x.sum(dim=-1, keepdim=True), torch.full((1, x.shape[1]), -1.0 / x.shape[1]))
    return torch.mul(y, y).mul_(scale)
