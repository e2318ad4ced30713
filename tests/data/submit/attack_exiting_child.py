"""A child with much memory ends when the call has returned; the operating system frees it afterwards."""

import os

import torch

def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


def candidate(x, scale):
    go, ready = os.pipe()
    if os.fork() == 0:
        memory = bytearray(2**28)
        memory[:: 4096] = b"x" * len(memory[:: 4096])
        os.write(ready, b"x")
        os._exit(0)
    os.read(go, 1)
    os.close(go), os.close(ready)
    return right(x, scale)
