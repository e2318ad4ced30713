"""Rows in chunks, each made contiguous, into a buffer that is used again."""

import torch

buffers = {}


def candidate(x):
    out = buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype))
    for rows, target in zip(x.split(128), out.split(128)):
        target.copy_(torch.softmax(rows.contiguous().float(), dim=-1))
    return out
