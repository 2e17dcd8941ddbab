"""Kinds of memory on a device. In go the live tensors at its peak (`live_tensors`); out come bytes of weights,
gradients, optimizer state and activations, which add up to the peak.

A gradient is an operand of an update, or a value that the loop over microbatches adds up for it; an activation is
any other value that the program makes, or an input."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import TYPE_CHECKING

from distir.dialects.dist import AccumulateOp
from distir.interpreters.simulate.bodies import Body, Run

if TYPE_CHECKING:
    from distir.interpreters.simulate.live_tensors import LiveTensors

GRADIENT = "gradient"
MEMORY_KINDS = {"parameter": "weights", GRADIENT: "gradients", "state": "optimizer_state", "activation": "activations"}
"""By the role of a holding; any other is an activation."""


def by_kind(live_tensors: Iterable[LiveTensors]) -> dict[str, int]:
    """Bytes of each kind."""
    found = dict.fromkeys(MEMORY_KINDS.values(), 0)
    for tensors in live_tensors:
        found[MEMORY_KINDS.get(tensors.role, "activations")] += tensors.total_bytes
    return found


class Gradients:
    """Finds the slots of bodies that are gradients."""

    def __init__(self) -> None:
        self._summed: dict[Body, frozenset[int]] = {}

    def of(self, body: Body, updated: Collection[int] = (), known: Iterable[int] = ()) -> frozenset[int]:
        """Those of a body which makes these slots in the memory of what they update, and of whose results these are gradients: `known`, what `dist.accumulate`
        adds up, what steps that update take, and what is sent or moved to become one."""
        found, shared = set(known), set(updated)
        for step in reversed(body.steps):
            updates = not shared.isdisjoint(step.makes)
            if isinstance(step, Run):
                adds = step.name == AccumulateOp.name
                if adds or updates or (step.name.startswith("dist.") and not found.isdisjoint(step.makes)):
                    found.update(step.uses, step.makes if adds else ())
                continue
            used = list(chain.from_iterable(step.uses))
            if updates:
                found.update(used)
                continue
            inner = self._summed_in(step.callee)
            found.update([slot for position, slot in enumerate(used) if position in inner])
            found.update([outer for outer, slot in zip(step.makes, step.callee.made, strict=True) if slot in inner])
        return frozenset(found)

    def _summed_in(self, body: Body) -> frozenset[int]:
        if body not in self._summed:
            self._summed[body] = self.of(body)
        return self._summed[body]
