"""Returns infinity."""

import torch


def candidate(x, scale):
    return torch.full_like(x, float("inf"))
