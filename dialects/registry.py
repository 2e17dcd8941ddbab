"""The dialects by name. In goes a program's text, whose parser asks for dialects; out comes a context with the
dialects of xDSL, distir and plug-ins. Drivers, the reader of programs and workers use it."""

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect

from distir.dialects.plugins import Registry

DIALECTS: Registry[Dialect] = Registry(
    "dialect",
    {
        "aten": "distir.dialects.aten:Aten",
        "attention": "distir.dialects.attention:Attention",
        "dist": "distir.dialects.dist:Dist",
        "rank": "distir.dialects.rank:Rank",
        "grad": "distir.dialects.grad:Grad",
        "jax": "distir.dialects.jax:Jax",
        "onnx": "distir.dialects.onnx:Onnx",
        "random": "distir.dialects.random:Random",
        "sdy": "distir.dialects.sdy:Sdy",
    },
    instance_of=Dialect,
)


def program_context(allow_unregistered: bool = False) -> Context:
    """A context that reads programs: functions, and the dialects of xDSL, distir and plug-ins, each loaded when the text first names it."""
    from xdsl.dialects.func import Func  # tools that only list dialects do without

    context = Context(allow_unregistered=allow_unregistered)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    register_dialects(context)
    return context


def register_dialects(context: Context) -> None:
    """Makes all dialects known to a context that lacks them: those of xDSL and its own plug-ins, and those of `DIALECTS`."""
    from xdsl.universe import Universe

    known = set(context.registered_dialect_names)
    others = {n: f for n, f in Universe.get_multiverse().all_dialects.items() if n not in DIALECTS}
    for name, factory in {**others, **{name: DIALECTS.factory(name) for name in DIALECTS}}.items():
        if name not in known:
            context.register_dialect(name, factory)
