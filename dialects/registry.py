"""Names of distir's dialects to lazy factories, for whoever registers them: the drivers, and the reader of programs."""

from collections.abc import Callable
from importlib import import_module

from xdsl.ir import Dialect

_DIALECTS = {
    "aten": "Aten",
    "dist": "Dist",
    "rank": "Rank",
    "grad": "Grad",
    "jax": "Jax",
    "onnx": "Onnx",
    "sdy": "Sdy",
}
"""The dialect `name` is `distir.dialects.name`'s attribute of this name."""


def _factory(name: str, attribute: str) -> Callable[[], Dialect]:
    return lambda: getattr(import_module(f"distir.dialects.{name}"), attribute)


DIALECTS: dict[str, Callable[[], Dialect]] = {name: _factory(name, attribute) for name, attribute in _DIALECTS.items()}
