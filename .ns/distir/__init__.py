"""distir: a compiler that distributes neural networks. What Python programs and plug-ins use of it is here.

    import distir

    model = distir.import_model("gpt2.onnx", shapes={"input1": (8, 1, 128)})
    plans = distir.search(model, machine="dgx-2", devices=16)         # a table, in notebooks too
    plans.best.save("best.mlir")
    distir.simulate(plans.best, "dgx-2").makespan_seconds
    distir.verify(model, plans.best)
    distir.run(plans.best, {"input1": batch})

The rest is in the sub-packages, which are the folders at the top of the repository: `dialects`, `interpreters`, `frontends`,
`passes`, `backends`, `tools`. Nothing is imported before it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distir.dialects.errors import DistirError
    from distir.dialects.plugins import (
        register_cost_model,
        register_dialect,
        register_frontend,
        register_implementations,
        register_kernels,
        register_lowering,
        register_machine,
        register_meaning,
        register_onnx_domain,
        register_pass,
        register_kernel_backend,
        register_schedule,
    )
    from distir.interpreters.operator_dialects import Meaning
    from distir.passes.shardcombine.callables import discover
    from distir.tools.api import Plan, Plans, import_model, parallelize, prove, run, search, simulate, verify

    __version__: str

_PLACES = {
    "discover": "distir.passes.shardcombine.callables",
    "DistirError": "distir.dialects.errors",
    "Meaning": "distir.interpreters.operator_dialects",
    **dict.fromkeys(
        ("Plan", "Plans", "import_model", "parallelize", "prove", "run", "search", "simulate", "verify"), "distir.tools.api"
    ),
    **dict.fromkeys(
        (
            "register_cost_model",
            "register_dialect",
            "register_frontend",
            "register_implementations",
            "register_kernels",
            "register_lowering",
            "register_machine",
            "register_meaning",
            "register_onnx_domain",
            "register_pass",
            "register_kernel_backend",
            "register_schedule",
        ),
        "distir.dialects.plugins",
    ),
}
"""Where each public name is."""

__all__ = [
    "DistirError",
    "Meaning",
    "Plan",
    "Plans",
    "__version__",
    "discover",
    "import_model",
    "parallelize",
    "prove",
    "register_cost_model",
    "register_dialect",
    "register_frontend",
    "register_implementations",
    "register_kernel_backend",
    "register_kernels",
    "register_lowering",
    "register_machine",
    "register_meaning",
    "register_onnx_domain",
    "register_pass",
    "register_schedule",
    "run",
    "search",
    "simulate",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from distir.dialects.version import distir_version

        return distir_version()
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
