"""Computes in a thread after it has returned."""

import threading

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


def candidate(x, scale):
    out = torch.empty_like(x)
    threading.Thread(target=lambda: out.copy_(right(x, scale))).start()
    return out
