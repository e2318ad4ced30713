"""Comparisons of compiled code, without a GPU."""
