"""What PyTorch's allocator keeps for each stream: a program read for simulation in, the most bytes live at a time of each stream's own tensors out.

Blocks that were allocated on one stream are given to no other (c10/cuda/CUDACachingAllocator: a pool of blocks per stream), so a device reserves the
sum of what its streams need at most, each at its own time: at least what is live at once, and more where messages have streams of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from distir.interpreters.simulate.bodies import Body, Call, Room, Run
from distir.interpreters.simulate.liveness import Liveness
from distir.interpreters.simulate.summaries import OpenProgram

MAIN = ""
"""The stream of which a program's arguments are."""


def pools_of(program: OpenProgram) -> list[dict[str, int]]:
    """Per device of the program's body, by stream; what stays from the start to the end (parameters, state) is not counted."""
    body = program.body
    found: list[dict[str, int]] = [{} for _ in range(body.devices)]
    for name in dict.fromkeys(name for _, name in body.streams):
        own = _Own(name).of(body, (name == MAIN,) * body.arguments)
        for device, peak in enumerate(Liveness().entry(own, program.sharing).peak):
            found[device][name] = peak
    return found


def between_streams(program: OpenProgram) -> dict[int, int]:
    """Per device, the bytes that its streams need, each at its own time, beyond what is live at once."""
    live = program.known.liveness.entry(program.body, program.sharing).peak
    return {d: sum(own.values()) - most for d, (own, most) in enumerate(zip(pools_of(program), live, strict=True))}


class _Own:
    """Functions in which only what one stream makes has a size."""

    def __init__(self, name: str):
        self.name = name
        self._known: dict[tuple[Body, tuple[bool, ...]], Body] = {}
        self._marks: dict[Body, list[bool]] = {}
        """Of each function made, which slots are the stream's."""

    def of(self, body: Body, given: tuple[bool, ...]) -> Body:
        """The function for arguments of which these slots are the stream's."""
        if (known := self._known.get((body, given))) is not None:
            return known
        marks = [*given, *[False] * (len(body.slots) - len(given))]
        steps: list[Run | Call] = []
        for step in body.steps:
            if isinstance(step, Call):
                inner = self.of(step.callee, tuple([marks[slot] for slots in step.uses for slot in slots]))
                for slot, made in zip(step.makes, inner.made, strict=True):
                    marks[slot] = self._marks[inner][made]
                step = step._replace(callee=inner)
            else:
                on = {body.streams[s] for s in step.streams}
                for slot in step.makes:
                    marks[slot] = (body.slots[slot][0], self.name) in on
            steps.append(step)
        slots: list[Room] = _sized(body.slots, marks)
        own = self._known[body, given] = Body(body.number, body.arity, slots, body.streams, steps, body.results)
        self._marks[own] = marks
        return own


def _sized(slots: Sequence[Room], marks: Sequence[bool]) -> list[Room]:
    return [(device, bytes_ if mine else 0) for (device, bytes_), mine in zip(slots, marks, strict=True)]
