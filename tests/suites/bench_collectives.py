"""The collectives alone, each also broken on purpose in the ways that a collective can be."""

import torch
from roofwatch.kernels.registry import find_kernel

all_reduce, all_gather, reduce_scatter, all_to_all = map(
    find_kernel, ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
)


def sound(spec, x, rank):
    return spec.reference(x, rank)


def zeroed(spec, x, rank):
    return sound(spec, x, rank) * 0


def without_the_other_ranks(spec, x, rank):
    shape = sound(spec, x, rank).shape
    own = x[rank].flatten()
    return own.repeat(-(-shape.numel() // own.numel()))[: shape.numel()].reshape(shape)


def for_the_next_rank(spec, x, rank):
    return sound(spec, x, (rank + 1) % len(x))


def with_its_last_tile_one_late(spec, x, rank):
    out = sound(spec, x, rank)
    return torch.cat([out[:, :-64], out[:, -65:-1]], dim=1)


def implement(spec, way):
    spec.implementation("torch", name=way.__name__, directions=["fwd"])(
        lambda x, rank: way(spec, x, rank)
    )


for spec in (all_reduce, all_gather, reduce_scatter, all_to_all):
    for way in (
        sound,
        zeroed,
        without_the_other_ranks,
        for_the_next_rank,
        with_its_last_tile_one_late,
    ):
        implement(spec, way)
