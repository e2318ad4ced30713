import torch

from roofwatch.kernels.optimiser import fused_adamw, fused_adamw_
from tests.kernels.builders import make_inputs


def test_the_step_in_place_writes_what_the_other_returns(device: str):
    inputs = make_inputs("fused_adamw", device, "bfloat16", n=1025)
    expected = fused_adamw(**inputs)
    weight = torch.empty_like(inputs["grad"])

    fused_adamw_(**inputs, weight=weight)

    written = inputs["master"], inputs["mean"], inputs["square"], weight
    assert all(map(torch.equal, written, expected))
