"""Changes the input that the spec declares."""

import torch


def candidate(total, x):
    return torch.maximum(total, x.tanh(), out=total)
