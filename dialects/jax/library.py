"""JAX itself, where it is installed: an optional extra, so it is looked up by name when a program needs it."""

from importlib import import_module
from typing import Any

from distir.dialects.errors import DistirError


def library(name: str = "jax") -> Any:
    """A module of JAX or jaxlib; DistirError, which says how to install them, where there is none."""
    try:
        return import_module(name)
    except ImportError as error:
        raise DistirError("a program of JAX needs JAX: pip install 'distir[jax]'") from error
