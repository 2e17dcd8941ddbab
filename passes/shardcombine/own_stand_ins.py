"""Stand-ins of ops whose class says too little. In goes a probe op; out come stand-ins with all numbers that the op
states as they are, and only dims of other extents.

Types may let a stride or a dilation grow with what it strides over, or not see that channels come in groups. Running the op shows it;
a stand-in that is small for all that has other numbers in its kernel, and windows are not known by it. Here running is asked from the
start, of an op with few rows. Such an op is a class of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

from distir.passes.shardcombine.classes import stand_ins
from distir.passes.shardcombine.probe_op import ProbeOp
from distir.passes.shardcombine.readings import Reading
from distir.passes.shardcombine.standins import StandIn, with_few_steps
from distir.passes.shardcombine.trial_runs import runs

_MOST_TRIED = 4


def own_stand_ins(probe_op: ProbeOp) -> Iterator[StandIn]:
    """A few, the likely ones first; none where the op does not run with few rows."""
    reading = Reading(cache(lambda point: runs(probe_op, point)), grouping=True, with_large=True)
    point = with_few_steps(probe_op, probe_op.point, (), reading.types)
    if reading.types(point) is None:
        return
    moved = {i for i, (old, new) in enumerate(zip(probe_op.point, point, strict=True)) if old != new}
    for small in islice(stand_ins(probe_op, point, reading), _MOST_TRIED):
        yield replace(small, altered=small.altered | {i for i in moved if small.leftovers[i] != 1})
