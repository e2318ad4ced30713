"""How tokens choose experts in the inputs of the mixture-of-experts kernels."""

from collections.abc import Iterable

import torch

from roofwatch import Case, InputMaker
from roofwatch.kernels.shapes import Workload

ROUTINGS = ("uniform", "zipf", "all_to_one")
"""Every expert alike; the second half as often as the first, the third a third, and so on; and the most skewed that
there is: all tokens choose the same experts.
"""


def routed(workloads: Iterable[Workload], *dimensions: str) -> list[Workload]:
    """The workloads under each routing, with those of their lengths that the kernel sees."""
    return [
        Workload({**{name: workload.shape[name] for name in dimensions}, "routing": routing}, workload.tags | {routing})
        for workload in workloads
        for routing in ROUTINGS
    ]


def chosen_experts(case: Case, make: InputMaker) -> torch.Tensor:
    """[T, top_k] int32: for each token different experts, drawn without replacement by the case's routing.

    Source: the largest of log-probabilities with Gumbel noise are such a draw (Kool et al., Stochastic beams and where
    to find them, 2019, arXiv 1903.06059).
    """
    T, E = case["T"], case["E"]
    log_rank = torch.log(make.permutation(E).cpu() + 1.0)
    routing = case.choice("routing")
    if routing == "all_to_one":
        scores = -log_rank.expand(T, E)
    else:
        # by way of integers, which are real also where floating-point inputs are left as the memory is
        uniform = (make.integers(T, E, high=2**30).cpu().double() + 0.5) / 2**30
        gumbel = -torch.log(-torch.log(uniform))
        scores = gumbel - log_rank if routing == "zipf" else gumbel
    return scores.topk(case["top_k"], dim=1).indices.to(device=make.device, dtype=torch.int32)


def expert_offsets(experts: torch.Tensor, n_experts: int) -> torch.Tensor:
    """[n_experts + 1] int32: where each expert's rows begin once they are sorted by expert, and their number."""
    counts = torch.bincount(experts.flatten().cpu(), minlength=n_experts)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return offsets.to(device=experts.device, dtype=torch.int32)
