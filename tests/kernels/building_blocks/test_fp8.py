import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.rounding import as_kernel_operand, from_e4m3, halved_in_e4m3fnuz, has_e4m3
from roofwatch.kernels.target import Target

EVERY_BYTE = torch.arange(256, dtype=torch.uint8)
IS_NUMBER = EVERY_BYTE % 128 != 127


@triton.jit
def _decode_kernel(code_ptr, out_ptr, halved_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    code = tl.load(code_ptr + offs)
    tl.store(out_ptr + offs, from_e4m3(code).to(tl.float32))
    tl.store(halved_ptr + offs, halved_in_e4m3fnuz(code))


def test_every_byte_is_read_as_the_number_that_torch_reads(device: str):
    out, halved = torch.empty(256, device=device), torch.empty(256, dtype=torch.uint8, device=device)
    _decode_kernel[(1,)](EVERY_BYTE.to(device), out, halved, BLOCK=256)
    numbers = EVERY_BYTE.view(torch.float8_e4m3fn).float()[IS_NUMBER]
    assert torch.equal(out.cpu()[IS_NUMBER], numbers)
    assert torch.equal(2 * halved.cpu().view(torch.float8_e4m3fnuz).float()[IS_NUMBER], numbers)


def test_targets_without_e4m3_are_given_its_bytes(monkeypatch):
    tensor = torch.ones(3).to(torch.float8_e4m3fn)
    for backend, arch, has_it in [
        ("cuda", "sm_80", False),
        ("cuda", "sm_89", True),
        ("cuda", "sm_90", True),
        ("cuda", "sm_120", True),
        ("hip", "gfx942", False),
        ("hip", "gfx950", True),
        ("interpreter", "", False),
    ]:
        target = Target(backend, arch)
        assert has_e4m3(target) is has_it
        monkeypatch.setattr("roofwatch.kernels.building_blocks.rounding.current_target", lambda target=target: target)
        assert as_kernel_operand(tensor).dtype == (torch.float8_e4m3fn if has_it else torch.uint8)
