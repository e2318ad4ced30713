"""Changes torch's global state and its environment."""

import os

import torch

def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


torch.set_default_dtype(torch.float16)
torch.set_flush_denormal(True)
torch.manual_seed(0)
torch.seed = torch.initial_seed = lambda: 0
os.environ["OMP_NUM_THREADS"] = "8"
os.environ["LD_PRELOAD"] = "/tmp/none.so"
candidate = right
