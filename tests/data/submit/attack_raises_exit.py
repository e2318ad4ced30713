"""Raises SystemExit with status 0."""

import sys


def candidate(x, scale):
    sys.exit(0)
