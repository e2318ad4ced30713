"""Cubes and divides."""

import torch


def candidate(x, scale):
    y = (x - x.mean(dim=-1, keepdim=True)).double()
    return (torch.pow(y, 2.0) * 1.0).float().clone() * torch.exp(torch.log(torch.full_like(x, scale)))
