"""JAX itself, an optional extra, so it is looked up when a program needs it. In goes a module's name; out comes the
module, or an error with how to install it."""

from importlib import import_module
from typing import Any

from distir.dialects.errors import DistirError


def library(name: str = "jax") -> Any:
    """A module of JAX or jaxlib; DistirError, which says how to install them, where there is none."""
    try:
        return import_module(name)
    except ImportError as error:
        raise DistirError("a program of JAX needs JAX: pip install 'distir[jax]'") from error
