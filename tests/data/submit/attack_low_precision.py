"""Computes in bfloat16."""

import torch


def candidate(x, scale):
    y = x.bfloat16()
    y -= y.mean(dim=-1, keepdim=True)
    return (y * y * scale).float()
