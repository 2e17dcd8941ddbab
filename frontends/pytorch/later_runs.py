"""Steps whose later runs differ are refused: a program remembers nothing but its results. In go the first run of a
step as a graph, and what it left in Python; out comes nothing, or a DistirError.

A run that leaves everything as it was is like all that follow. Otherwise some of the later runs are tried: the next
ones, one long after, and, for each decision by a number that runs change, one that decides otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensor

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.reasons import reason_of
from distir.frontends.pytorch.remembering import TracedFunction
from distir.frontends.pytorch.side_effects import Surroundings, is_left
from distir.frontends.pytorch.watched_numbers import Decisions, place

NEXT_RUNS = 4
"""Runs that follow the first, at most; as many as gradients are often accumulated over."""
DECISIONS = 16
"""Places where numbers that runs change are decided by, at most."""
_COMPARED_BYTES = 1 << 24
"""Of a constant that is compared."""


def refuse_memory(
    function: TracedFunction, surroundings: Surroundings, first: fx.GraphModule, run: Callable[[], fx.GraphModule]
) -> None:
    """Raises DistirError if a run after the first, which `surroundings` were made before, is not like it."""
    changes = surroundings.changes() + function.leftovers()
    if not changes:
        return

    def refuse(says: str) -> NoReturn:
        raise DistirError(
            f"{function.name} changes {', '.join(changes[:3])}, {says}, and a program does not remember: make it a buffer of a module, or take "
            "it out of the step"
        )

    def same(which: str, says: str) -> None:
        try:
            graph = run()
        except DistirError as error:
            refuse(f"after which {which} is no program ({error})")
        except Exception as error:
            refuse(f"after which {which} fails ({reason_of(error)})")
        if not _is_same(graph, first):
            refuse(says)

    if advanced := surroundings.advanced():
        changes = advanced
        refuse("of which each run gets another part")
    decisions = Decisions()
    surroundings.watch(decisions)
    function.watch(decisions)
    start, left = surroundings.state(), function.left()
    for _ in range(NEXT_RUNS):
        same("its next run", "which its next run reads")
        still = surroundings.changes() + function.leftovers()
        if not still or surroundings.only_numbers():
            break
        surroundings.watch(decisions)
        function.watch(decisions)
    if decisions.escaped is not None:
        refuse(f"which is read ({place(decisions.escaped)})")
    if len(decisions.sites) > DECISIONS:
        refuse(f"by which it decides in {len(decisions.sites)} places ({place(next(iter(decisions.sites)))})")
    for site in [*decisions.sites, None]:
        surroundings.restore(start)
        function.put_left(left)
        if site is None and not surroundings.go_far() and not any(left):
            break  # the next runs were tried
        decisions.flipped = site
        for _ in range(2):  # what a run decides may show in the next
            same("a later run", f"which a later run {'reads' if site is None else f'decides by ({place(site)})'}")
            decisions.flipped = None
            surroundings.changes()


def _is_same(graph: fx.GraphModule, first: fx.GraphModule) -> bool:
    """Whether a graph is the first run's, and reads nothing that a run left."""
    constants = _constants(graph)
    if graph.code != first.code or any(is_left(tensor) for _, tensor in constants):
        return False
    return all(_is_equal(a, b) for (_, a), (_, b) in zip(constants, _constants(first), strict=True))


def _is_equal(a: Tensor, b: Tensor) -> bool:
    if a is b or isinstance(a, FakeTensor) or isinstance(b, FakeTensor) or a.nbytes > _COMPARED_BYTES:
        return True
    return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))


def _constants(graph: fx.GraphModule) -> list[tuple[str, Tensor]]:
    found = [(str(node.target), attribute(graph, node.target)) for node in graph.graph.nodes if node.op == "get_attr"]
    return [(name, tensor) for name, tensor in found if tensor is not None]


def attribute(graph: fx.GraphModule, target: Any) -> Tensor | None:
    """A constant of a graph; None if it is no tensor."""
    found: Any = graph
    for name in str(target).split("."):
        found = getattr(found, name)
    return found if isinstance(found, Tensor) else None
