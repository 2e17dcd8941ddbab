"""The version of distir: of the installed package, or of the checkout's `pyproject.toml` where it is not installed."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def distir_version() -> str:
    """Such as `0.1.0`; `unknown` if neither is there."""
    try:
        return version("distir")
    except PackageNotFoundError:
        project = Path(__file__).resolve().parents[1] / "pyproject.toml"
        return tomllib.loads(project.read_text("utf-8"))["project"]["version"] if project.is_file() else "unknown"
