"""Limits of sampling that no candidates can be collected for."""

import torch

from roofwatch.kernels.sampling import top_k_top_p_sampling, top_k_top_p_sampling_reference


def test_a_limit_that_most_tokens_pass_is_searched_in_the_whole_row(device: str):
    logits = torch.randn(1, 5000, generator=torch.Generator().manual_seed(5)).to(device)
    limits = {
        "temperature": torch.tensor([0.7], device=device),
        "top_k": torch.tensor([4000], dtype=torch.int32, device=device),
        "top_p": torch.tensor([0.9], device=device),
        "uniform": torch.tensor([0.4], device=device),
    }

    tokens = top_k_top_p_sampling(logits, **limits)

    exact = {name: limit.double() for name, limit in limits.items()}
    expected = top_k_top_p_sampling_reference(logits.double(), **exact)
    assert tokens.tolist() == expected.tolist()
