"""The memory that a device reserves for a program. In goes the program; out come bytes, by PyTorch's caching
allocator run over all its allocations and frees, in program order.

A reservation is larger than the live tensors: requests are rounded, each stream has blocks of its own that no other
takes, and a free block serves no larger request; a message of several tensors has a buffer of its own meanwhile. The
rules and the constants are those of c10/cuda/CUDACachingAllocator.cpp. As there, unused blocks are given back where
the device would otherwise be full.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from distir.interpreters.machines import Machine, Memory
from distir.interpreters.simulate.bodies import Body, Buffer, Call, Message, Run
from distir.interpreters.simulate.liveness import DIES, SHARES, Context, entry_context, step_context, surviving
from distir.interpreters.simulate.summaries import OpenProgram

SMALL = 1 << 20
"""Requests up to this share segments of their own (kSmallSize), and what is left of a larger block is a block only above it."""
SHARED = 10
"""Requests below so many times `SMALL` (kMinLargeAlloc) share a segment of twice that (kLargeBuffer)."""
MAIN = ""
"""The stream of which a program's arguments are."""


class Request(NamedTuple):
    """A tensor that is allocated on a stream, or freed."""

    tensor: int
    bytes: int
    """0: it is freed."""
    stream: str = MAIN


@dataclass(eq=False, slots=True)
class Block:
    """Part of a segment."""

    bytes: int
    pool: tuple[str, bool]
    """Its stream, and whether it serves small requests."""
    before: Block | None = None
    after: Block | None = None
    is_free: bool = False
    number: int = 0


@dataclass
class CachingAllocator:
    """One device's. `reserved` is what it has from the driver now, `most` at any time."""

    memory: Memory
    capacity: int
    reserved: int = 0
    most: int = 0
    _free: dict[tuple[str, bool], list[tuple[int, int, Block]]] = field(
        default_factory=dict[tuple[str, bool], list[tuple[int, int, Block]]]
    )
    """By pool, the free blocks in order of size."""
    _blocks: int = 0

    def allocate(self, bytes_: int, stream: str) -> Block:
        """The smallest free block of the stream that is large enough, else one of a new segment."""
        step = self.memory.allocator_granularity_bytes
        size = -(-bytes_ // step) * step
        pool = (stream, size <= SMALL)
        free = self._free.setdefault(pool, [])
        at = bisect_left(free, size, key=lambda each: each[0])
        block = free.pop(at)[2] if at < len(free) else self._segment(size, pool)
        left = block.bytes - size
        if left >= step if pool[1] else left > SMALL:
            rest = Block(left, pool, block, block.after)
            if block.after is not None:
                block.after.before = rest
            block.bytes, block.after = size, rest
            self._enter(rest)
        block.is_free = False
        return block

    def free(self, block: Block) -> None:
        """Joins it to free neighbours in its segment."""
        if not self.memory.allocator_segment_bytes:
            self.reserved -= block.bytes
            return
        for other in (block.before, block.after):
            if other is not None and other.is_free:
                self._leave(other)
                if other is block.before:
                    block.before = other.before
                    if other.before is not None:
                        other.before.after = block
                else:
                    block.after = other.after
                    if other.after is not None:
                        other.after.before = block
                block.bytes += other.bytes
        self._enter(block)

    def _segment(self, size: int, pool: tuple[str, bool]) -> Block:
        bytes_, unit = size, self.memory.allocator_segment_bytes
        if unit:
            large = 2 * SHARED * SMALL if size < SHARED * SMALL else -(-size // unit) * unit
            bytes_ = unit if pool[1] else large
        if self.reserved + bytes_ > self.capacity:
            self._give_back()
        self.reserved += bytes_
        self.most = max(self.most, self.reserved)
        return Block(bytes_, pool)

    def _give_back(self) -> None:
        """Segments of which nothing is used."""
        for free in self._free.values():
            whole = [each for each in free if each[2].before is None and each[2].after is None]
            for each in whole:
                free.remove(each)
                self.reserved -= each[0]

    def _enter(self, block: Block) -> None:
        block.is_free = True
        self._blocks += 1
        block.number = self._blocks
        insort(self._free[block.pool], (block.bytes, block.number, block))

    def _leave(self, block: Block) -> None:
        free = self._free[block.pool]
        del free[bisect_left(free, (block.bytes, block.number), key=lambda each: each[:2])]


def reserved_bytes(program: OpenProgram, device: int, machine: Machine) -> int:
    """The most that a device of the program's body has from the driver at a time, with libraries' workspace."""
    memory = machine.memory
    capacity = machine.groups[machine.group_of(device)].device.memory_capacity_bytes
    allocator, blocks = CachingAllocator(memory, capacity - memory.workspace_bytes), dict[int, Block]()
    for buffers in program.read.buffers:
        for on, bytes_ in buffers:
            if on == device and bytes_:
                allocator.allocate(bytes_, MAIN)
    for tensor, bytes_, stream in requests(program, device):
        if bytes_:
            blocks[tensor] = allocator.allocate(bytes_, stream)
        else:
            allocator.free(blocks.pop(tensor))
    return allocator.most + memory.workspace_bytes


def requests(program: OpenProgram, device: int) -> Iterator[Request]:
    """What a device of the program's body allocates and frees, in program order, beside the program's arguments."""
    return _Requests(program, device).of_entry()


class _Requests:
    """Of one device."""

    def __init__(self, program: OpenProgram, device: int):
        self.program, self.device, self.made = program, device, 0
        self.liveness = program.known.liveness

    def of_entry(self) -> Iterator[Request]:
        body = self.program.body
        yield from self._of(body, self.device, entry_context(body, self.program.sharing), {})

    def _flat(self, message: Run, slots: Sequence[Buffer], local: int) -> int:
        """Bytes of the buffer that several tensors are copied into, or out of, where they are one message: that of the larger side."""
        sides = [
            [slots[s][1] for s in dict.fromkeys(side) if slots[s][0] == local] for side in (message.uses, message.makes)
        ]
        return max(map(sum, sides)) if max(map(len, sides)) > 1 else 0

    def _of(self, body: Body, local: int, context: Context, storage: dict[int, int]) -> Iterator[Request]:
        """Of a body of which the device is number `local`. `storage` has the tensor of each argument slot, and then of every slot."""
        kept, fates = surviving(body, context)
        slots, streams = body.slots, body.streams
        for step, life in zip(body.steps, self.liveness.lives(body, context.aliases), strict=True):
            if isinstance(step, Call):
                if local not in step.devices:
                    continue
                inner = life.context or step_context(step, life, kept, fates)
                given = [storage.get(slot, 0) for used in step.uses for slot in used]
                inside = dict(enumerate(given))
                yield from self._of(step.callee, step.devices.index(local), inner, inside)
                made = zip(step.makes, step.callee.made, inner.fates, strict=True)
                storage.update({slot: inside[own] for slot, own, fate in made if fate != DIES and own in inside})
                continue
            stream = next((streams[s][1] for s in step.streams if streams[s][0] == local), MAIN)
            for slot in step.makes:
                device, bytes_ = slots[slot]
                if device == local and bytes_ and fates.get(slot) != SHARES:
                    self.made += 1
                    storage[slot] = self.made
                    yield Request(self.made, bytes_, stream)
            if isinstance(step.cost, Message) and (flat := self._flat(step, slots, local)):
                self.made += 1
                yield Request(self.made, flat, stream)
                yield Request(self.made, 0)
            for slot in life.dying:
                if slot not in kept and slots[slot][0] == local and (tensor := storage.pop(slot, 0)):
                    yield Request(tensor, 0)
