"""Returns far more than the reference."""

import torch


def candidate(x, scale):
    return torch.empty(2**28, dtype=torch.uint8)
