"""Fills the scratch folder."""

import tempfile


def candidate(x, scale):
    with tempfile.TemporaryFile() as file:
        while True:
            file.write(bytes(2**20))
            file.flush()
