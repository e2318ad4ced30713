import pytest

from roofwatch.kernels.target import Target


@pytest.mark.parametrize(
    ("target", "has_tma"),
    [
        (Target("cuda", "sm_80"), False),
        (Target("cuda", "sm_90"), True),
        (Target("cuda", "sm_120"), True),
        (Target("hip", "gfx942"), False),
        (Target("interpreter", ""), True),
    ],
)
def test_tiles_are_copied_by_an_engine_from_hopper_on_and_in_the_interpreter(target: Target, has_tma: bool):
    assert target.has_tma is has_tma


def test_the_amd_targets_have_chiplets():
    assert [Target("hip", arch).chiplet_count for arch in ("gfx942", "gfx950", "gfx1100")] == [8, 8, 1]
    assert Target("cuda", "sm_100").chiplet_count == 1
