"""The memory of a function, without running it. In go a body and its context; out come bytes on each of its devices:
those added in the end (net), and the most on the way (peak).

Bodies compose: after one that adds n1 with peak p1, another makes (n1 + n2, max(p1, n1 + p2)). Both numbers depend
on the outside only through a `Context`: the argument slots that die in this call, the fate of the slots that it
returns, and the argument slots that are the same storage. A slot dies in the operation that uses it last, or that
makes it if none uses it; passing a slot to a call is a use only if the callee uses it, and returning it is none.
(That an argument lives until its call returns would be wrong.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from typing import NamedTuple

from distir.interpreters.simulate.bodies import Body, Call, Slots

DIES, LIVES, SHARES = 0, 1, 2
"""What becomes of a slot that a call makes and returns: unused after, used later, or in the memory of an entry argument
that it updates: then it takes none."""


class Context(NamedTuple):
    """All that a call's surroundings say about its memory."""

    dying: Slots
    """Argument slots whose last use is in this call; of those that are one storage, the first."""
    fates: tuple[int, ...]
    """Of each slot that the call makes and returns."""
    aliases: Slots | None
    """Per argument slot, the first that is the same storage; None if all are different."""


class Memory(NamedTuple):
    """Bytes, per device of the body."""

    net: list[int]
    peak: list[int]


class Life(NamedTuple):
    """What one step does to memory, as far as the body alone says."""

    dying: Slots
    """A run: slots to free after it. A call: slots whose last use is inside."""
    context: Context | None
    """Of a call whose slots all stay inside this body."""
    positions: Slots
    """Of a call's dying slots, among its arguments."""
    lives: tuple[bool, ...]
    """Of a call, per slot that it makes and returns, whether this body uses it later."""
    aliases: Slots | None


class Liveness:
    """Memory of bodies, remembered."""

    def __init__(self) -> None:
        self._memories: dict[tuple[Body, Context], Memory] = {}
        self._lives: dict[tuple[Body, Slots | None], list[Life]] = {}

    def of(self, body: Body, context: Context) -> Memory:
        if (memory := self._memories.get((body, context))) is None:
            memory = self._memories[body, context] = self.run(body, context)
        return memory

    def entry(self, body: Body, sharing: set[int]) -> Memory:
        """Of the entry: arguments and results stay. `sharing` are the results in the memory of arguments."""
        return self.run(body, entry_context(body, sharing))

    def lives(self, body: Body, aliases: Slots | None) -> list[Life]:
        """Per step of the body, what it does to memory."""
        if (lives := self._lives.get((body, aliases))) is None:
            lives = self._lives[body, aliases] = lives_of(body, aliases)
        return lives

    def run(self, body: Body, context: Context) -> Memory:
        slots = body.slots
        kept, fates = surviving(body, context)
        net, peak = [0] * body.devices, [0] * body.devices
        for step, life in zip(body.steps, self.lives(body, context.aliases), strict=True):
            if isinstance(step, Call):
                inner = life.context or step_context(step, life, kept, fates)
                added, most = self.of(step.callee, inner)
                for device, change, height in zip(step.devices, added, most, strict=True):
                    before = net[device]
                    if before + height > peak[device]:
                        peak[device] = before + height
                    net[device] = before + change
                continue
            for slot in step.makes:
                if fates.get(slot) != SHARES:
                    device, bytes_ = slots[slot]
                    net[device] += bytes_
                    if net[device] > peak[device]:
                        peak[device] = net[device]
            for slot in life.dying:
                if slot not in kept:
                    device, bytes_ = slots[slot]
                    net[device] -= bytes_
        return Memory(net, peak)


def entry_context(body: Body, sharing: set[int]) -> Context:
    """Nothing that the entry is given or returns dies; `sharing` are results in the memory of arguments."""
    return Context((), tuple([SHARES if slot in sharing else LIVES for slot in body.made]), None)


def surviving(body: Body, context: Context) -> tuple[set[int], dict[int, int]]:
    """The slots that a call leaves alive, and what becomes of those that it makes and returns."""
    fates = dict(zip(body.made, context.fates, strict=True))
    kept = set(range(body.arguments)).difference(context.dying)
    kept.update([slot for slot, fate in fates.items() if fate != DIES])
    return kept, fates


def step_context(call: Call, life: Life, kept: set[int], fates: dict[int, int]) -> Context:
    """The surroundings of a call in a body with surroundings itself."""
    dying = [position for slot, position in zip(life.dying, life.positions, strict=True) if slot not in kept]
    outcome = [fates.get(slot) or int(lives) for slot, lives in zip(call.makes, life.lives, strict=True)]
    return Context(tuple(dying), tuple(outcome), life.aliases)


def lives_of(body: Body, aliases: Slots | None) -> list[Life]:
    """Per step, what it does to memory, from the last step to the first."""
    calls = _Calls({*range(body.arguments), *body.made})
    needed = calls.needed
    lives: list[Life] = []
    for step in reversed(body.steps):
        if isinstance(step, Call):
            life = calls.life(step, step.uses if aliases is None else [_renamed(s, aliases) for s in step.uses])
        else:
            uses = step.uses if aliases is None else _renamed(step.uses, aliases)
            life = Life(tuple({*uses, *step.makes} - needed), None, (), (), None)
        lives.append(life)
        needed.update(life.dying)
    lives.reverse()
    return lives


class _Calls:
    """What calls do to memory, from the last to the first. A tuple that travels through many calls (parameters) is looked
    into once: what is needed after a call is needed before it."""

    def __init__(self, outside: set[int]):
        self.outside = outside
        self.needed: set[int] = set()
        """Slots used after the step."""
        self._settled: dict[int, Slots] = {}
        """Tuples all of whose slots are needed, by identity."""

    def life(self, step: Call, uses: Sequence[Slots]) -> Life:
        are_distinct = len(set[int]().union(*uses)) == sum(map(len, uses))
        positions, same = self._distinct(step, uses) if are_distinct else self._repeated(step, uses)
        dying = tuple([slot for slot, _ in positions])
        later = tuple([slot in self.needed for slot in step.makes])
        places = tuple([position for _, position in positions])
        context = None
        if self.outside.isdisjoint(dying) and self.outside.isdisjoint(step.makes):
            context = Context(places, tuple(map(int, later)), same)
        return Life(dying, context, places, later, same)

    def _distinct(self, step: Call, uses: Sequence[Slots]) -> tuple[list[tuple[int, int]], None]:
        """Slots whose last use is in the call, with their positions among its arguments."""
        needed, used, found = self.needed, step.callee.used, list[tuple[int, int]]()
        for slots, (first, wholly) in zip(uses, step.callee.operands, strict=True):
            if len(slots) > 1:
                if id(slots) in self._settled:
                    continue
                if wholly:
                    self._settled[id(slots)] = slots
            found += [(s, p) for p, s in enumerate(slots, first) if s not in needed and used[p]]
        return found, None

    def _repeated(self, step: Call, uses: Sequence[Slots]) -> tuple[list[tuple[int, int]], Slots]:
        """The same where a slot is used more than once, at the first position of each; and these."""
        flat = tuple(chain.from_iterable(uses))
        first = dict(zip(reversed(flat), range(len(flat) - 1, -1, -1), strict=True))
        used = set(compress(flat, step.callee.used))
        positions = sorted([first[slot] for slot in used - self.needed])
        return [(flat[position], position) for position in positions], tuple([first[slot] for slot in flat])


def _renamed(uses: Sequence[int], aliases: Slots) -> Slots:
    """Slots, each argument as the first that is the same storage."""
    count = len(aliases)
    return tuple([aliases[slot] if slot < count else slot for slot in uses])
