"""Works in its input, which the spec does not declare."""

import torch


def candidate(x, scale):
    x -= x.mean(dim=-1, keepdim=True)
    return x.mul_(x).mul_(scale)
