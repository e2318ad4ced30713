"""Read `setup.cfg`, which setuptools still accepts as well as `pyproject.toml`."""

import configparser
from pathlib import Path


def read_config(file: Path) -> configparser.ConfigParser:
    """Read `setup.cfg`; empty if there is none or it is damaged."""
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(file)
    except (configparser.Error, UnicodeDecodeError):
        return configparser.ConfigParser()
    return config
