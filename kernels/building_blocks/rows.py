"""How our CUDA C++ divides a row among the threads of a block, and moves it in vectors (rows.cuh)."""

from dataclasses import dataclass

import torch

ONLY_NVIDIA = dict.fromkeys(("gfx942", "gfx950"), "is AMD's, and NVRTC compiles CUDA C++ for NVIDIA's GPUs alone")
"""What every kernel in CUDA C++ declares as `unsupported_targets`."""

_WARP = 32
_VECTOR_BYTES = 16
_FEW_VECTORS = 512


@dataclass(frozen=True)
class RowLayout:
    """Of a block of threads over a row.

    Args:
        length: Elements of a vector, which one instruction moves.
        held: Vectors of the row that each thread holds in registers.
        most_threads: That a block may have, so that a thread has the registers it takes.
        n_threads: Of a block.
        fits: The registers hold the whole row.
    """

    length: int
    held: int
    most_threads: int
    n_threads: int
    fits: bool


def row_layout(*operands: torch.Tensor, most_threads: int = 1024) -> RowLayout:
    """The layout for rows of the operands, of which the last dim is the row.

    A short row gives each thread one vector, so that there are threads enough to keep a multiprocessor busy; a longer
    one gives it four, whose loads are under way together. Of a row too long for that, the largest block holds a part.
    """
    length = vector_length(*operands)
    n_vectors = operands[0].shape[-1] // length
    held = 4 if _FEW_VECTORS <= n_vectors <= 4 * 512 else 1
    most = 512 if held == 4 else most_threads
    n_threads = min(-(-n_vectors // (held * _WARP)) * _WARP, most)
    return RowLayout(length, held, most, n_threads, fits=n_vectors <= held * n_threads)


def vector_length(*operands: torch.Tensor) -> int:
    """Elements of the longest vector, of 16 bytes at most, that divides the rows of every operand and on whose
    boundaries all of them start; 1 for rows of odd length, which are then read element by element.
    """
    length = _VECTOR_BYTES // operands[0].element_size()
    while length > 1 and not all(_is_divided(operand, length) for operand in operands):
        length //= 2
    return length


def _is_divided(operand: torch.Tensor, length: int) -> bool:
    starts = (operand.shape[-1], *operand.stride()[:-1])
    alignment_bytes = min(length * operand.element_size(), _VECTOR_BYTES)
    return all(start % length == 0 for start in starts) and operand.data_ptr() % alignment_bytes == 0
