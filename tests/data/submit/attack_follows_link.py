"""Writes through a symbolic link that leaves the scratch folder."""

import os
import tempfile

import torch


def right(x, scale):
    y = x - x.mean(dim=-1, keepdim=True)
    return torch.pow(y.double(), 2.0).float() * scale


def candidate(x, scale):
    link = os.path.join(tempfile.mkdtemp(), "link")
    os.symlink("/tmp/roofwatch-escaped", link)
    with open(link, "w") as file:
        file.write("escaped")
    return right(x, scale)
