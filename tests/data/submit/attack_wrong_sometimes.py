"""Skips the work in one of five calls."""

import random

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


def candidate(x, scale):
    return right(x, scale) if random.random() < 0.8 else torch.zeros_like(x)
