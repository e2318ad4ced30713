"""A softmax over scores that come in tiles, of which none is kept.

Exponentials are powers of two, one instruction each: the scale carries the factor log2(e), and log-sum-exps are to
base 2.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv 1805.02867), algorithm 3.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1e38)
"""Below every score. Minus infinity would make NaN of a row that has seen no key yet."""


@triton.jit
def add_scores(scores, scale, row_max, row_sum):
    """Take one more tile of scores into the maximum and the sum of each row.

    Args:
        scores: [n_rows, n_cols] float32, minus infinity where a row does not see a column.
        scale: Of the scores, times log2(e).
        row_max: [n_rows], of the tiles before; `LOWEST` at first.
        row_sum: [n_rows], of their exponentials under that maximum; zeros at first.

    Returns:
        The exponentials of the scores under the new maximum, by what sums under the old one are multiplied, the new
        maximum and the new sum.
    """
    new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale)
    exps = tl.exp2(scores * scale - new_max[:, None])
    correction = tl.exp2(row_max - new_max)
    return exps, correction, new_max, row_sum * correction + tl.sum(exps, axis=1)
