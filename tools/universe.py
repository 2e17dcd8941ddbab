"""A universe of xDSL for `distir-opt` and (as entry point) `xdsl-opt`. In go the registries, plug-ins among them;
out come the passes by name, and the dialects and passes as that universe. Every xDSL tool in the environment imports
this module, so it imports nothing heavy itself."""

from collections.abc import Callable

from xdsl.passes import ModulePass
from xdsl.universe import Universe

from distir.dialects.registry import DIALECTS
from distir.passes.registry import PASSES


def _pass_factory(name: str) -> Callable[[], type[ModulePass]]:
    def found() -> type[ModulePass]:
        from distir.tools.pass_options import reading_options

        return reading_options(PASSES[name])

    return found


DISTIR_UNIVERSE = Universe(
    all_dialects={name: DIALECTS.factory(name) for name in DIALECTS},
    all_passes={name: _pass_factory(name) for name in PASSES},
)
