"""The axes of a machine's devices. In goes a module that names its axes; out come the axis of communication between
devices, and the place of each device along the axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp
from xdsl.ir import Operation

from distir.dialects.sharding import AxesAttr
from distir.interpreters.costs import PARTICIPANTS
from distir.interpreters.simulate.bodies import Devices, Message, Run
from distir.interpreters.simulate.expansion import Scope
from distir.interpreters.simulate.timing import on_devices

AXES = "dist.axes"
"""The attribute of a module that names the axes of its devices, the last one fastest."""
UNNAMED = "devices"
"""What all communication is along where a program does not say its axes."""


@dataclass
class Axes:
    """Names and sizes, the last one fastest."""

    sizes: Sequence[tuple[str, int]]
    _patterns: dict[Devices, tuple[tuple[int, ...], ...]] = field(
        default_factory=dict[Devices, "tuple[tuple[int, ...], ...]"]
    )

    @classmethod
    def of_module(cls, module: ModuleOp) -> Axes:
        """Those that a module says; none where it does not."""
        axes = module.attributes.get(AXES)
        return cls(axes.data if isinstance(axes, AxesAttr) else ())

    def place(self, device: int) -> tuple[int, ...]:
        """Where a device is along each axis."""
        found: list[int] = []
        for _, size in reversed(self.sizes):
            device, place = divmod(device, size)
            found.append(place)
        return tuple(found[::-1])

    def between(self, devices: Sequence[int]) -> str:
        """The first axis along which they are in different places: a sum over replicas and tensor ranks is along the replicas, what goes to
        another stage is along the stages."""
        for (axis, _), places in zip(self.sizes, zip(*map(self.place, devices), strict=True), strict=True):
            if len(set(places)) > 1:
                return axis
        return UNNAMED

    def of_step(self, op: Operation, step: Run, scope: Scope) -> str:
        """The axis that a step of a body communicates along."""
        if PARTICIPANTS in op.attributes:
            return self.between(cast("DenseArrayBase[Any]", op.attributes[PARTICIPANTS]).get_values())
        if isinstance(step.cost, Message):
            return self.between(on_devices(step.cost.participants, scope.devices))
        return UNNAMED

    def pattern(self, devices: Devices) -> tuple[tuple[int, ...], ...]:
        """Where devices are, from where the first is: tuples of devices with equal patterns communicate along the same axes."""
        if devices not in self._patterns:
            places = list(map(self.place, devices))
            self._patterns[devices] = tuple(
                [tuple([there - here for there, here in zip(place, places[0], strict=True)]) for place in places]
            )
        return self._patterns[devices]
