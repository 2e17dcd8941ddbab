"""Pins: what the user fixed before a search. In go attributes of the program; out come the options and states that they allow.

`dist.strategy` on an operation fixes its choice along the axes that it names; `dist.sharding` on an argument or result of a
function fixes its states. `dist.forbid` is a list: a strategy in it forbids every option that makes all its choices, a
sharding forbids exactly those states. `dist.stored` on an argument says what it is along some axes, `{dp = "cut"}`: cut in any dim, whole, or addends; where
it cannot be so, it is whole along them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Operation

from distir.dialects.errors import DistirError
from distir.dialects.sharding import Choice, Partial, Replicated, Sharded, ShardingAttr, StrategyAttr
from distir.passes.distribution.lower import SHARDING, STRATEGY
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.options import Option

FORBID, STORED = "dist.forbid", "dist.stored"

CUT, WHOLE, ADDENDS = "cut", "whole", "addends"
KINDS = {CUT: Sharded, WHOLE: Replicated, ADDENDS: Partial}


class Pins:
    """Reads pins over one mesh. All methods raise DistirError for a pin that names an axis which the mesh does not have."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self._axes = {axis: i for i, (axis, _) in enumerate(mesh.axes)}

    def allows(self, op: Operation, combination: Sequence[Option]) -> bool:
        """Whether an op may take these options, one per axis."""
        pinned = op.attributes.get(STRATEGY)
        if isinstance(pinned, StrategyAttr) and not self._makes(pinned.choices, combination):
            return False
        forbidden = (a for a in _listed(op.attributes) if isinstance(a, StrategyAttr))
        return not any(self._makes(a.choices, combination) for a in forbidden)

    def _makes(self, choices: Mapping[str, Choice], combination: Sequence[Option]) -> bool:
        return all(combination[self._axis(axis)].choice == choice for axis, choice in choices.items())

    def _axis(self, axis: str) -> int:
        if axis not in self._axes:
            raise DistirError(f"a pin names the axis '{axis}', the mesh has {', '.join(self._axes)}")
        return self._axes[axis]

    def is_pinned(self, attributes: Mapping[str, Attribute]) -> bool:
        return isinstance(attributes.get(SHARDING), ShardingAttr)

    def states(
        self, found: list[AxisStates], attributes: Mapping[str, Attribute], type_: Attribute, what: str
    ) -> list[AxisStates]:
        """The states in which a value may be passed, of those found; a pin may name others."""
        forbidden = {self._states_of(a, type_, what) for a in _listed(attributes) if isinstance(a, ShardingAttr)}
        if isinstance(stored := attributes.get(STORED), DictionaryAttr):
            found = self._stored(found, stored)
        pinned = attributes.get(SHARDING)
        if isinstance(pinned, ShardingAttr):
            found = [self._states_of(pinned, type_, what)]
        left = [states for states in found if states not in forbidden] if forbidden else list(found)
        if not left:
            raise DistirError(f"{what} of type {type_}: its pins allow no sharding")
        return left

    def _stored(self, found: list[AxisStates], stored: DictionaryAttr) -> list[AxisStates]:
        for axis, kind in stored.data.items():
            if not isinstance(kind, StringAttr) or kind.data not in KINDS:
                raise DistirError(f"{STORED}: expected {', '.join(KINDS)} for axis '{axis}', got {kind}")
            at = self._axis(axis)
            so = [states for states in found if isinstance(states[at], KINDS[kind.data])]
            found = so or [states for states in found if isinstance(states[at], Replicated)]
        return found

    def _states_of(self, sharding: ShardingAttr, type_: Attribute, what: str) -> AxisStates:
        from distir.passes.apply_sharding import stated

        for axis in sharding.states:
            self._axis(axis)
        shape = cast("TensorType[Any]", type_).get_shape() if isinstance(type_, TensorType) else ()
        states = stated(sharding, shape, what, dict(self.mesh.axes))
        if (why := self.mesh.conflict(states)) is not None:
            raise DistirError(f"{sharding} on {what}: {why}")
        return states


def _listed(attributes: Mapping[str, Attribute]) -> Sequence[Attribute]:
    forbidden = attributes.get(FORBID)
    return cast(ArrayAttr[Attribute], forbidden).data if isinstance(forbidden, ArrayAttr) else ()
