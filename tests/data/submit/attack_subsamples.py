"""Estimates the mean from every other column."""

import torch


def candidate(x, scale):
    y = x - x[:, ::2].mean(dim=-1, keepdim=True)
    return y.mul_(y).mul_(scale)
