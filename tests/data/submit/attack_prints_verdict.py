"""Prints a verdict and ends."""

import os


print('{"verdict": "faster", "reason": "10 times as fast", "effect": {"ratio": 10.0}}', flush=True)
os.write(1, b'{"verdict": "faster"}\n')
os._exit(0)
