"""The live tensors of a device at its peak. In go a program opened on a machine and a device; out come the tensors
and their bytes, by exact liveness as the summary counts it. Only the call in which the peak lies is opened, and in
it the one inside: the bytes add up to the summary's peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects.builtin import DictionaryAttr, StringAttr

from distir.interpreters.model_names import inside, model_name
from distir.interpreters.simulate.bodies import Call
from distir.interpreters.simulate.expansion import Expansion, Scope
from distir.interpreters.simulate.kinds import GRADIENT, Gradients
from distir.interpreters.simulate.labels import callee_name
from distir.interpreters.simulate.liveness import (
    DIES,
    SHARES,
    Context,
    entry_context,
    step_context,
    surviving,
)


class LiveTensors(NamedTuple):
    """Tensors that are alike: one name at one place of the program, as many as are live."""

    name: str
    """An argument's `dist.name`, else the operation's label."""
    role: str
    """An argument's `dist.role`; `gradient` or `activation` for what the program makes, `update` for what a result updates in place."""
    operation: str
    """What made it; nothing for an argument."""
    path: tuple[str, ...]
    """The functions around the operation, from the entry's call."""
    bytes: int
    """Of one."""
    copies: int
    module: str = ""
    """What the model calls what made it (`model_name`)."""

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.copies


class Peak(NamedTuple):
    """The moment when a device holds the most."""

    device: int
    bytes: int
    during: tuple[str, ...]
    """The operation, after the calls around it; empty if it is before the run."""
    live_tensors: list[LiveTensors]
    """All that is live, the largest in total first."""


class Kept(NamedTuple):
    """Where a live storage was made: a slot of a body."""

    scope: Scope
    slot: int
    shares: bool


@dataclass
class PeakWalk:
    """Walks to the peak of one device."""

    expansion: Expansion
    device: int
    live: dict[int, Kept]
    """By storage number."""
    made: int = 0
    calls: list[tuple[Scope, Call]] = field(default_factory=list[tuple[Scope, Call]])
    """Around the peak, from the entry's."""

    def find(self, scope: Scope, context: Context, arguments: list[int], height: int) -> tuple[str, ...]:
        """Replays a scope until its net growth on the device is `height`; what was running then."""
        body, local = scope.body, scope.devices.index(self.device)
        liveness = self.expansion.program.known.liveness
        kept, fates = surviving(body, context)
        storage = dict(enumerate(arguments))
        net = 0
        steps = zip(scope.function.operations, body.steps, liveness.lives(body, context.aliases), strict=True)
        for op, step, life in steps:
            label = scope.function.labels[op]
            if isinstance(step, Call):
                if local not in step.devices:
                    continue
                inner, on = life.context or step_context(step, life, kept, fates), step.devices.index(local)
                change, most = (memory[on] if on < len(memory) else 0 for memory in liveness.of(step.callee, inner))
                if net + most == height and most:
                    numbers = [storage.get(slot, -1) for slots in step.uses for slot in slots]
                    self.calls.append((scope, step))
                    return self.find(self.expansion.inside(scope, step, op), inner, numbers, most)
                net += change
                outcome = dict(zip(step.makes, inner.fates, strict=True))
            else:
                outcome = {slot: fates.get(slot, int(slot not in life.dying)) for slot in step.makes}
                net += sum(
                    body.slots[slot][1]
                    for slot in step.makes
                    if body.slots[slot][0] == local and outcome[slot] != SHARES
                )
            for slot in step.makes:
                if body.slots[slot][0] == local and (not isinstance(step, Call) or outcome[slot] != DIES):
                    self.made += 1
                    storage[slot] = self.made
                    self.live[self.made] = Kept(scope, slot, outcome[slot] == SHARES)
            if not isinstance(step, Call) and net == height and any(body.slots[s][0] == local for s in step.makes):
                return (*scope.path, f"{op.name} {label}" if label != op.name else label)
            for slot in life.dying:
                if slot not in kept and body.slots[slot][0] == local:
                    self.live.pop(storage.get(slot, -1), None)
                    if not isinstance(step, Call):
                        net -= body.slots[slot][1]
        return scope.path

    def gradients(self) -> list[frozenset[int]]:
        """The slots that are gradients, of each body around the peak, the entry's first."""
        gradients, program = Gradients(), self.expansion.program
        found = [gradients.of(program.body, program.sharing)]
        for scope, call in self.calls:
            outer, made = found[len(scope.path)], call.callee.made
            found.append(
                gradients.of(call.callee, known=[m for m, s in zip(made, call.makes, strict=True) if s in outer])
            )
        return found


def peak_of(expansion: Expansion, device: int) -> Peak:
    """What the device holds at its peak."""
    program, scope = expansion.program, expansion.entry()
    body = scope.body
    search = PeakWalk(expansion, device, {})
    before = program.read.bytes.get(device, 0)
    memory = program.known.liveness.entry(body, program.sharing).peak
    height = memory[device] if device < len(memory) else 0
    during = search.find(scope, entry_context(body, program.sharing), [], height) if height else ()
    gradients = search.gradients()
    counted = Counter([_described(expansion, kept, gradients) for kept in search.live.values()])
    for index, buffers in enumerate(program.read.buffers):
        for on, bytes_ in buffers:
            if on == device:
                counted[LiveTensors(*_port(expansion, index), "", (), bytes_, 1)] += 1
    live_tensors = [description._replace(copies=copies) for description, copies in counted.items()]
    live_tensors.sort(key=lambda h: (-h.total_bytes, h.name, h.path))
    return Peak(device, before + height, during, live_tensors)


def _described(expansion: Expansion, kept: Kept, gradients: Sequence[frozenset[int]]) -> LiveTensors:
    """One storage, by where it was made: inside calls, by the operation there."""
    scope, slot = kept.scope, kept.slot
    role = "update" if kept.shares else GRADIENT if slot in gradients[len(scope.path)] else "activation"
    bytes_ = 0 if kept.shares else scope.body.slots[slot][1]
    path = [part.partition(":")[0] for part in scope.path]
    body, function, around = scope.body, scope.function.name, scope.around
    while True:
        number = expansion.makers(body)[slot]
        op, step = expansion.function(function).operations[number], body.steps[number]
        if not isinstance(step, Call):
            break
        function, around = callee_name(op), inside(op, around)
        path.append(function)
        body, slot = step.callee, step.callee.made[step.makes.index(slot)]
    label = expansion.function(function).labels[op]
    return LiveTensors(label, role, op.name, tuple(path), bytes_, 1, model_name(op, around))


def _port(expansion: Expansion, index: int) -> tuple[str, str]:
    """The `dist.name` and `dist.role` of an argument of the entry."""
    entry = expansion.program.reader.walk.function(expansion.program.entry)
    attributes = entry.arg_attrs.data[index] if entry.arg_attrs is not None else DictionaryAttr({})
    name, role = attributes.data.get("dist.name"), attributes.data.get("dist.role")
    hint = entry.body.block.args[index].name_hint
    return (
        name.data if isinstance(name, StringAttr) else hint or f"argument {index}",
        role.data if isinstance(role, StringAttr) else "argument",
    )
