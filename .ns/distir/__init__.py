"""distir: a compiler that distributes neural networks.

`distir.discover(callable, example_args)` is the one public function; the rest is in the sub-packages, which are the
folders at the top of the repository: `dialects`, `frontends`, `interpreters`, `passes`, `backends`, `tools`. Nothing is
imported before it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distir.passes.shardcombine.callables import discover

__all__ = ["discover"]


def __getattr__(name: str) -> Any:
    if name == "discover":
        from distir.passes.shardcombine.callables import discover

        return discover
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
