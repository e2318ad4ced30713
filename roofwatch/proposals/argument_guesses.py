"""Inputs that `roofwatch init` proposes for the arguments of a launcher, by annotation and name."""

import re
from collections.abc import Iterable, Mapping

_MATRIX = 'make.normal(case["n_rows"], case["n_cols"])'
_VECTOR = 'make.normal(case["n_cols"])'
_LOGITS = 'make.logits(case["n_rows"], case["n_cols"])'
_PROBABILITIES = 'make.uniform(case["n_rows"], case["n_cols"], low=0.01, high=1.0)'
_BY_ANNOTATION = {"int": 'case["n_cols"]', "float": "1.0", "bool": "False", "str": '""'}
_BY_NAME = {
    r"eps(ilon)?": "1e-6",
    r"(.*_)?ignore_index": "-100",
    r"(.*_)?logits(_.*)?": _LOGITS,
    r"(.*_)?(probs?|probabilit(y|ies))|y_true": _PROBABILITIES,
    r"(.*_)?(weights?|gamma|beta|bias|w|b)": _VECTOR,
    r"(.*_)?(targets?|labels?|index|indices|idx|ids)": (
        'make.integers(case["n_rows"], high=case["n_cols"])'
    ),
    r"(.*_)?(lengths?|lens|seq_?lens?)": (
        'make.integers(case["n_rows"], low=1, high=case["n_cols"] + 1)'
    ),
    r"(.*_)?mask": 'make.mask(case["n_rows"], case["n_cols"])',
    r"offset|(.*_)?smoothing|dropout(_p)?|p": "0.0",
    r"(.*_)?(scale|alpha|temperature|coeff?|multiplier|limit)": "1.0",
    r"(is|has|use|return|enable)_.*|training|in_?place": "False",
}
"""Inputs by the whole name of an argument without an annotation of its own kind."""
_VALUE_OF_ANNOTATION = {"int": r"-?\d+", "float": r"-?[\d.]+(e-?\d+)?", "bool": "True|False"}
"""What a guess by name looks like that fits an annotation."""


def guess_inputs(parameters: Mapping[str, str]) -> dict[str, str]:
    """Source of each input, by the names of the arguments and their annotations."""
    inputs = {name: guess_input(name, kind) for name, kind in parameters.items()}
    # `a` and `b` are two operands of an element-wise function, not an operand and its bias
    if {"a", "b"} <= inputs.keys() and inputs["b"] == _VECTOR:
        inputs["b"] = inputs["a"]
    return inputs


def matrix_count(inputs: Iterable[str]) -> int:
    """How many of the guessed inputs have a value for each row and column."""
    return sum('case["n_rows"], case["n_cols"]' in source for source in inputs)


def guess_input(name: str, annotation: str) -> str:
    """Source of an input; a matrix if neither annotation nor name says more."""
    by_name = next(
        (source for pattern, source in _BY_NAME.items() if re.fullmatch(pattern, name.lower())),
        None,
    )
    by_annotation = _BY_ANNOTATION.get(annotation)
    # `scale` is a number by its name, and one for each column where a tensor is asked for
    is_tensor = "Tensor" in annotation and "None" not in annotation
    if is_tensor and by_name is not None and not by_name.startswith("make."):
        return _VECTOR
    if by_annotation is None:
        return by_name or _MATRIX
    fitting = _VALUE_OF_ANNOTATION.get(annotation, "")
    # eps is a float of a certain size
    if by_name is not None and re.fullmatch(fitting, by_name):
        return by_name
    return by_annotation
