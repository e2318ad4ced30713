"""Returns one row that broadcasts."""

import torch


def candidate(x, scale):
    return torch.ones(1, x.shape[1])
