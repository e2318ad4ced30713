"""Takes all memory."""

import torch


def candidate(x, scale):
    kept = []
    while True:
        kept.append(torch.ones(2**26))
