"""Functions for the simulator. In goes a function, read by `reading`; out comes a body: the streams of each
operation, its time, and the storages that it uses and makes. Bodies that are equal, under whatever name and in
whatever module, become one object (`Library`). So everything learned about one (`liveness`, `timing`) holds for all.

Devices and streams are the function's own. The cost of an operation on one device is part of the body, where devices
are alike; the cost of a message depends on the devices of a call, so a body only names the message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, compress
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from distir.interpreters.costs import Cost, Costs, detached, kernel_of
from distir.interpreters.ranks import group_of
from distir.interpreters.simulate.groups import RankSymmetry, Representatives
from distir.interpreters.simulate.result import Stream
from distir.interpreters.work import type_bytes

Devices = tuple[int, ...]

Slots = tuple[int, ...]
"""Numbers of a body's storages: what a value is held in, as in the schedule."""

Buffer = tuple[int, int]
"""A storage: (device, bytes)."""


class Message(NamedTuple):
    """An operation whose cost depends on its devices. It is asked of `op`, a copy that no module holds."""

    op: Operation
    participants: tuple[int, ...]
    symmetry: RankSymmetry | None = None
    """Who does the same, and must take as long."""


class Run(NamedTuple):
    """One operation other than a call."""

    name: str
    cost: Cost | Message
    streams: tuple[int, ...]
    moves: bool
    """A `dist.move`: the second stream waits for the first."""
    uses: Slots
    makes: Slots
    slows: tuple[int, ...] = ()
    """Main streams of the devices where it is a message on another stream."""
    times: int = 1
    """How many it is: of devices of a group that do the same, one is there."""


class Call(NamedTuple):
    """A call. Argument slots of the callee are `uses`, operand by operand, those that it makes and returns are `makes`.
    Operands that are one value are one object. What stays to the end of the program (`reading`) is not among them."""

    callee: Body
    devices: tuple[int, ...]
    streams: tuple[int, ...]
    """For each stream of the callee, the caller's."""
    uses: tuple[Slots, ...]
    makes: Slots


@dataclass(eq=False)
class Body:
    """A function. Compared by identity: equal functions are the same object."""

    number: int
    """Callees have lower numbers than their callers."""
    arity: tuple[int, ...]
    """Slots of each argument; those of all arguments come first, in order."""
    slots: list[Buffer]
    streams: list[Stream]
    steps: list[Run | Call]
    results: list[Slots]

    @cached_property
    def arguments(self) -> int:
        """How many slots all arguments have."""
        return sum(self.arity)

    @cached_property
    def made(self) -> Slots:
        """The slots that it makes and returns, once each."""
        return tuple(s for s in dict.fromkeys(chain.from_iterable(self.results)) if s >= self.arguments)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Each once."""
        return tuple(dict.fromkeys([s.cost for s in self.steps if isinstance(s, Run) and isinstance(s.cost, Message)]))

    @cached_property
    def counts(self) -> Counter[str]:
        """Its own operations by name."""
        counts = Counter[str]()
        for step in self.steps:
            if isinstance(step, Run):
                counts[step.name] += step.times
        return counts

    @cached_property
    def calls(self) -> Counter[tuple[Body, Devices]]:
        """How often it calls each function on each of its devices."""
        return Counter([(step.callee, step.devices) for step in self.steps if isinstance(step, Call)])

    @cached_property
    def devices(self) -> int:
        """How many devices it has."""
        own = {device for device, _ in chain(self.slots, self.streams)}
        for message in self.messages:
            own.update(message.participants, *(message.symmetry.others if message.symmetry else ()))
        return 1 + max(own.union(*[devices for _, devices in self.calls]), default=0)

    @cached_property
    def used(self) -> tuple[bool, ...]:
        """Per argument slot, whether any operation uses it, also inside calls."""
        used: set[int] = set()
        seen: set[tuple[int, Body, int]] = set()
        for step in self.steps:
            if isinstance(step, Run):
                used.update(step.uses)
                continue
            callee = step.callee
            for slots, (first, wholly) in zip(step.uses, callee.operands, strict=True):
                if len(slots) == 1:
                    if wholly:
                        used.add(slots[0])
                elif (key := (id(slots), callee, first)) not in seen:
                    seen.add(key)
                    used.update(compress(slots, callee.used[first : first + len(slots)]))
        return tuple([slot in used for slot in range(self.arguments)])

    @cached_property
    def operands(self) -> tuple[tuple[int, bool], ...]:
        """Of each argument, its first slot, and whether all of its slots are used."""
        starts = accumulate(self.arity, initial=0)
        return tuple([(start, all(self.used[start : start + n])) for start, n in zip(starts, self.arity, strict=False)])

    def signature(self) -> tuple[object, ...]:
        """Everything that a simulation depends on."""
        return (self.arity, *map(tuple, (self.slots, self.streams, self.steps, self.results)))


@dataclass
class Library:
    """Bodies, and what single operations cost, of any number of modules."""

    costs: Costs
    bodies: dict[tuple[object, ...], Body] = field(default_factory=dict[tuple[object, ...], Body])
    _numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _known: dict[tuple[object, ...], Cost | Operation] = field(
        default_factory=dict[tuple[object, ...], Cost | Operation]
    )
    _representatives: dict[Hashable, Representatives] = field(default_factory=dict[Hashable, Representatives])
    _bodies_made: int = 0

    def body(
        self,
        arity: tuple[int, ...],
        slots: list[Buffer],
        streams: list[Stream],
        steps: list[Run | Call],
        results: list[Slots],
    ) -> Body:
        """A new body."""
        self._bodies_made += 1
        return Body(self._bodies_made, arity, slots, streams, steps, results)

    def representatives(self, module: ModuleOp, each: frozenset[str]) -> Representatives | None:
        """The devices that are simulated of a module's groups, if it has any: the same object for the same devices."""
        if (group := group_of(module)) is None:
            return None
        kept = Representatives.of(module, group, each if self.costs.model.machine.is_uniform else group.sizes)
        key = tuple(group.sizes.items()), tuple(kept.values())
        return self._representatives.setdefault(key, Representatives(group, kept))

    def bytes(self, type_: Attribute) -> int:
        """Memory of a value."""
        return type_bytes(type_)

    def number(self, attribute: Hashable) -> int:
        """Equal attributes have one number, and so have equal tuples of numbers."""
        return self._numbers.setdefault(attribute, len(self._numbers))

    def cost(self, op: Operation, key: tuple[object, ...], participants: tuple[int, ...]) -> Cost | Message:
        """What the operation costs, or the message that it is. Operations with equal keys cost the same on the same
        devices. Where devices are not alike, what an operation costs depends on where it is, as for messages."""
        count = min(len(participants), 2)
        if (known := self._known.get((key, count))) is None:
            if self._is_local(count):
                known = self.costs.ask(op, (0,) * count)
            else:
                known = op if op.regions or kernel_of(op) is not None else detached(op, op.operands, op.results)
            self._known[key, count] = known
        return known if isinstance(known, Cost) else Message(known, participants)

    def _is_local(self, participants: int) -> bool:
        """Whether what so many devices take part in costs the same wherever they are."""
        return participants == 0 or (participants == 1 and self.costs.model.machine.is_uniform)
