"""Names of distir's dialects to lazy factories, for whoever registers them: the drivers, and the reader of programs."""

from collections.abc import Callable
from importlib import import_module

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect

_DIALECTS = {
    "aten": "Aten",
    "attention": "Attention",
    "dist": "Dist",
    "rank": "Rank",
    "grad": "Grad",
    "jax": "Jax",
    "onnx": "Onnx",
    "random": "Random",
    "sdy": "Sdy",
}
"""The dialect `name` is `distir.dialects.name`'s attribute of this name."""


def _factory(name: str, attribute: str) -> Callable[[], Dialect]:
    return lambda: getattr(import_module(f"distir.dialects.{name}"), attribute)


DIALECTS: dict[str, Callable[[], Dialect]] = {name: _factory(name, attribute) for name, attribute in _DIALECTS.items()}


def program_context(allow_unregistered: bool = False) -> Context:
    """A context that reads programs: functions, and distir's dialects, each loaded when the text first names it."""
    from xdsl.dialects.func import Func  # tools that only list dialects do without

    context = Context(allow_unregistered=allow_unregistered)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    for name, factory in DIALECTS.items():
        context.register_dialect(name, factory)
    return context
