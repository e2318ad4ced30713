"""Where this roofwatch is installed."""

from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
"""The package itself."""
INSTALL_ROOT = PACKAGE_DIR.parent
"""The folder that makes `import roofwatch` work when it is on `sys.path`; in a checkout, the repository's root."""
