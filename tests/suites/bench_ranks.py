"""Kernels that two processes launch together: some that work, and one for each way that one rank
alone can fail.
"""

import os
import time

import plus_one
import roofwatch
import torch
from roofwatch import KernelSpec, cases
from torch import distributed


def declare(name, launch):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.normal(case["ranks"], case["n"]), "rank": make.rank},
        # each rank gets the sum, times its own number: the right result differs from rank to rank
        reference=lambda x, rank: x.sum(dim=0) * (rank + 1),
        cases=cases(shapes=[{"ranks": 2, "n": 64}]),
        flop_count=lambda case: 2 * case["n"],
        memory_bytes=lambda case: 8 * case["n"],
        bus_bytes=lambda case: 4 * case["n"],
        rank_dimension="ranks",
    )
    spec.implementation("torch")(launch)
    return spec


def sum_of_ranks(x, rank):
    out = x[rank].clone()
    distributed.all_reduce(out)
    return out * (rank + 1)


def on_rank_1(do):
    """Does something on rank 1 before it takes part."""

    def launch(x, rank):
        if rank == 1:
            do()
        return sum_of_ranks(x, rank)

    return launch


def raise_(error):
    raise error


def _wrong_on_rank_1(x, rank):
    return sum_of_ranks(x, rank) + rank


def _takes_longer_on_rank_1(x, rank):
    time.sleep(0.005 * rank)
    return x.sum(dim=0) * (rank + 1)


def _unsupported(x, rank):
    raise roofwatch.UnsupportedError("needs something else")


raises = declare("raises", on_rank_1(lambda: raise_(ValueError("no such luck"))))
leaves = declare("leaves", on_rank_1(lambda: os._exit(3)))
aborts = declare("aborts", on_rank_1(os.abort))
hangs = declare("hangs", on_rank_1(lambda: time.sleep(1_000)))
exhausts_memory = declare("exhausts_memory", on_rank_1(lambda: torch.empty(2**50)))
wrong_on_rank_1 = declare("wrong_on_rank_1", _wrong_on_rank_1)
unsupported = declare("unsupported", _unsupported)
takes_longer_on_rank_1 = declare("takes_longer_on_rank_1", _takes_longer_on_rank_1)
works = declare("works", sum_of_ranks)

alone = plus_one.declare("alone", lambda x: x + 1)
