"""Sends its inputs away."""

import socket

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


def candidate(x, scale):
    with socket.create_connection(("127.0.0.1", 80), timeout=1) as away:
        away.sendall(bytes(x.numpy()))
    return right(x, scale)
