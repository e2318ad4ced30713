"""Inputs that `roofwatch init` proposes for the arguments of a launcher, by annotation and name."""

import re

_MATRIX = 'make.normal(case["n_rows"], case["n_cols"])'
_BY_ANNOTATION = {"int": 'case["n_cols"]', "float": "1.0", "bool": "False", "str": '""'}
_BY_NAME = {
    r"eps(ilon)?": "1e-6",
    r"(.*_)?(weights?|gamma|bias|w|b)": 'make.normal(case["n_cols"])',
    r"(.*_)?(targets?|labels?|index|indices|idx|ids)": (
        'make.integers(case["n_rows"], high=case["n_cols"])'
    ),
    r"(.*_)?mask": 'make.mask(case["n_rows"], case["n_cols"])',
    r"offset|(.*_)?smoothing|dropout(_p)?|p": "0.0",
    r"(.*_)?(scale|alpha|temperature|coeff?|multiplier|limit)": "1.0",
    r"(is|has|use|return|enable)_.*|training|in_?place": "False",
}
"""Inputs by the whole name of an argument without an annotation of its own kind."""


def guess_input(name: str, annotation: str) -> str:
    """Source of an input; a matrix if neither annotation nor name says more."""
    by_name = next(
        (source for pattern, source in _BY_NAME.items() if re.fullmatch(pattern, name.lower())),
        None,
    )
    by_annotation = _BY_ANNOTATION.get(annotation)
    # eps is a float of a certain size
    if by_annotation is None or (by_name is not None and by_annotation == "1.0"):
        return by_name or _MATRIX
    return by_annotation
