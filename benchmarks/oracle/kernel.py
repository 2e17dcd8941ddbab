"""Executes a program operation by operation, from flat tables: the semantics of `distir.interpreters.simulate` in one loop.

Every call is entered and every operation executed; nothing is remembered but clocks and storages. Compiled by numba
(`pip install 'distir[accelerate]'`) it takes some 20 ns per operation; without numba it is the same Python, for small programs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

RUN, MOVE, CALL = 0, 1, 2
"""Kinds of operations; a move makes its second stream wait for its first."""

ABSENT = -1
"""The storage of a value that is on no device."""


class Tables(NamedTuple):
    """A program. Ranges are given by where they start: of i from `x_start[i]` to `x_start[i + 1]`.

    A function has slots, one per tensor (a tuple has those of its elements): arguments first. A frame is a function on machine
    devices: it says what the function's own numbers of devices, streams, costs and callees stand for."""

    # Per operation, those of all functions one after the other.
    kind: np.ndarray
    detail: np.ndarray
    """Which of the function's costs, or of its callees."""
    streams_start: np.ndarray
    streams: np.ndarray
    slows_start: np.ndarray
    slows: np.ndarray
    """Streams that compute more slowly beside it."""
    uses_start: np.ndarray
    uses: np.ndarray
    """Slots."""
    makes_start: np.ndarray
    makes: np.ndarray
    """Slots."""
    buffer_device: np.ndarray
    """Per slot that is made by a run: on which of the function's devices; ABSENT if on none."""
    buffer_bytes: np.ndarray

    # Per function.
    operations_start: np.ndarray
    slots: np.ndarray
    """How many."""
    results_start: np.ndarray
    results: np.ndarray
    """Slots."""

    # Per frame.
    function: np.ndarray
    frame_devices_start: np.ndarray
    frame_devices: np.ndarray
    """Machine devices."""
    frame_streams_start: np.ndarray
    frame_streams: np.ndarray
    """Machine streams."""
    frame_costs_start: np.ndarray
    frame_costs: np.ndarray
    """Picoseconds."""
    frame_slowdowns: np.ndarray
    """Picoseconds that each of the same operations adds to the streams that it slows."""
    frame_callees_start: np.ndarray
    frame_callees: np.ndarray
    """Frames."""


class Storages(NamedTuple):
    """What is allocated, in the order in which it is; the entry's arguments first."""

    device: np.ndarray
    bytes: np.ndarray
    born: np.ndarray
    """The step that made it, -1 for arguments."""
    last_use: np.ndarray
    """The step."""


def execute(
    tables: Tables,
    entry: int,
    depth: int,
    stack: np.ndarray,
    arguments: int,
    clocks: np.ndarray,
    storages: Storages,
) -> int:
    """Runs the frame `entry`, of whose arguments the storages are in the `stack` and in `storages` (so many) already.
    Moves the clocks, fills the storages and leaves those of the entry's slots in the stack, which has room for all slots of any
    `depth` calls. Returns how many steps there were."""
    t = tables
    frames = np.zeros(depth + 1, np.int64)
    bases = np.zeros(depth + 1, np.int64)
    counters = np.zeros(depth + 1, np.int64)
    level, frame, base = 0, entry, 0
    function = t.function[frame]
    operation, end = t.operations_start[function], t.operations_start[function + 1]
    step, storage = 0, arguments
    while True:
        if operation == end:
            if level == 0:
                return step
            level -= 1
            inner, first = base, t.results_start[function]
            frame, base, operation = frames[level], bases[level], counters[level]
            for i in range(t.makes_start[operation], t.makes_start[operation + 1]):
                stack[base + t.makes[i]] = stack[inner + t.results[first]]
                first += 1
            function = t.function[frame]
            end = t.operations_start[function + 1]
            operation += 1
            continue
        if t.kind[operation] == CALL:
            frames[level], bases[level], counters[level] = frame, base, operation
            level += 1
            inner = base + t.slots[function]
            position = inner
            for i in range(t.uses_start[operation], t.uses_start[operation + 1]):
                stack[position] = stack[base + t.uses[i]]
                position += 1
            frame = t.frame_callees[t.frame_callees_start[frame] + t.detail[operation]]
            base = inner
            function = t.function[frame]
            operation, end = t.operations_start[function], t.operations_start[function + 1]
            continue
        first, last = t.streams_start[operation], t.streams_start[operation + 1]
        on = t.frame_streams_start[frame]
        start = 0
        for i in range(first, last):
            clock = clocks[t.frame_streams[on + t.streams[i]]]
            if clock > start:
                start = clock
        if t.kind[operation] == MOVE:
            first += 1
        else:
            start += t.frame_costs[t.frame_costs_start[frame] + t.detail[operation]]
        for i in range(first, last):
            clocks[t.frame_streams[on + t.streams[i]]] = start
        for i in range(t.slows_start[operation], t.slows_start[operation + 1]):
            slowdown = t.frame_slowdowns[t.frame_costs_start[frame] + t.detail[operation]]
            clocks[t.frame_streams[on + t.slows[i]]] += slowdown
        for i in range(t.uses_start[operation], t.uses_start[operation + 1]):
            used = stack[base + t.uses[i]]
            if used != ABSENT:
                storages.last_use[used] = step
        for i in range(t.makes_start[operation], t.makes_start[operation + 1]):
            if t.buffer_device[i] == ABSENT:
                stack[base + t.makes[i]] = ABSENT
                continue
            stack[base + t.makes[i]] = storage
            storages.device[storage] = t.frame_devices[t.frame_devices_start[frame] + t.buffer_device[i]]
            storages.bytes[storage] = t.buffer_bytes[i]
            storages.born[storage] = step
            storages.last_use[storage] = step
            storage += 1
        step += 1
        operation += 1


def peaks(storages: Storages, steps: int, devices: int) -> np.ndarray:
    """The most bytes that each device holds at a time: after a step's results, before what it used last is freed."""
    live, peak = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    count = len(storages.born)
    first_dying = np.full(steps + 1, ABSENT, np.int32)
    next_dying = np.full(count, ABSENT, np.int32)
    for storage in range(count):
        last = storages.last_use[storage]
        next_dying[storage] = first_dying[last]
        first_dying[last] = storage
    storage = 0
    for step in range(-1, steps):
        while storage < count and storages.born[storage] == step:
            device = storages.device[storage]
            live[device] += storages.bytes[storage]
            if live[device] > peak[device]:
                peak[device] = live[device]
            storage += 1
        if step >= 0:
            dying = first_dying[step]
            while dying != ABSENT:
                live[storages.device[dying]] -= storages.bytes[dying]
                dying = next_dying[dying]
    return peak


@cache
def compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`execute` and `peaks`, compiled where numba is installed."""
    try:
        from numba import njit
    except ImportError:
        return execute, peaks
    return njit(cache=True)(execute), njit(cache=True)(peaks)
