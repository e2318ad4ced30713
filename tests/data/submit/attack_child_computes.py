"""A child process computes on after the call has returned."""

import os

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


def candidate(x, scale):
    out = torch.zeros_like(x).share_memory_()
    if os.fork() == 0:
        out.copy_(right(x, scale))
        os._exit(0)
    return out
