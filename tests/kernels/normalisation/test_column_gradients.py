import pytest
import torch

from roofwatch.kernels.normalisation.reductions import MAX_ROW_BYTES_BACKWARD, backward_config, share_count


def test_long_rows_are_worked_on_four_at_a_time_in_tiles_of_as_many_elements():
    longest = MAX_ROW_BYTES_BACKWARD // 2
    assert "ROWS" not in backward_config(longest, 2)
    assert backward_config(longest + 1, 2) == {"ROWS": 4, "BLOCK": 1024, "num_warps": 8}


@pytest.mark.parametrize(
    ("n_groups", "n_rows", "expected"),
    [
        (1, 100_000, 264),  # two programs of eight warps on each of 132 multiprocessors
        (4, 100_000, 66),
        (1, 7, 7),  # no program without a row
        (1000, 50, 1),
    ],
)
def test_rows_are_dealt_out_to_as_many_programs_as_keep_the_gpu_busy(n_groups: int, n_rows: int, expected: int):
    x = torch.empty(0)  # on no GPU, so taken to be for an H100
    assert share_count(x, n_groups, n_rows, {"BLOCK": 4096, "num_warps": 8}) == expected
