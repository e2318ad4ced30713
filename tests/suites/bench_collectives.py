"""The collectives alone, each also broken on purpose in the ways that a collective can be."""

import torch
from roofwatch.kernels.registry import find_kernel

COLLECTIVES = [
    find_kernel(name)
    for name in ("all_reduce", "all_reduce_rms_norm", "all_gather", "reduce_scatter", "all_to_all")
]
globals().update({spec.name: spec for spec in COLLECTIVES})


def sound(spec, x, rank, **further):
    return spec.reference(x, rank, **further)


def zeroed(spec, x, rank, **further):
    return changed(spec, lambda out: out * 0, x, rank, **further)


def without_the_other_ranks(spec, x, rank, **further):
    def repeated(out):
        own = x[rank].flatten()
        return own.repeat(-(-out.numel() // own.numel()))[: out.numel()].reshape(out.shape)

    return changed(spec, repeated, x, rank, **further)


def for_the_next_rank(spec, x, rank, **further):
    return sound(spec, x, (rank + 1) % len(x), **further)


def with_its_last_tile_one_late(spec, x, rank, **further):
    return changed(
        spec, lambda out: torch.cat([out[:, :-64], out[:, -65:-1]], dim=1), x, rank, **further
    )


def changed(spec, change, x, rank, **further):
    """The sound result, or the first of several, changed."""
    results = sound(spec, x, rank, **further)
    if isinstance(results, tuple):
        return change(results[0]), *results[1:]
    return change(results)


def implement(spec, way):
    spec.implementation("torch", name=way.__name__, directions=["fwd"])(
        lambda x, rank, **further: way(spec, x, rank, **further)
    )


for spec in COLLECTIVES:
    for way in (
        sound,
        zeroed,
        without_the_other_ranks,
        for_the_next_rank,
        with_its_last_tile_one_late,
    ):
        implement(spec, way)
