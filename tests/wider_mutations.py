"""Faults that reach further than one operation: a module of level 3 goes in; mutations come out that exchange two values wherever they are
used, put devices into other collectives or leave one out, and, where devices are written once for a group, communicate along another axis or
give a device another's numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from distir.dialects.dist.communication import CollectiveOp
from distir.dialects.dist.groups import ByRankAttr
from distir.dialects.sharding import MeshOp
from tests.mutation import Copy, Edit, Mutation

PAIRS = 6
"""Of values of one type in one block, and of neighbouring collectives, that are tried."""


def wider_mutations(module: ModuleOp, rng: random.Random) -> Iterator[Mutation]:
    axes = [name for op in module.ops if isinstance(op, MeshOp) for name in op.axis_sizes]
    for function in module.ops:
        if not isinstance(function, FuncOp) or function.is_declaration:
            continue
        block = function.body.block
        yield from _exchanged_values(block, rng)
        collectives = [op for op in block.ops if isinstance(op, CollectiveOp)]
        for first, second in pairwise(collectives):
            if type(first) is type(second) and len(first.operands) == len(second.operands) > 1:
                yield Mutation(
                    "regrouped", second, "its last participant is that of the one before", _regroup(first, second)
                )
        for op in collectives:
            if len(op.operands) > 1 and [r.type for r in op.results] == [o.type for o in op.operands]:
                yield Mutation("left out", op, "its last participant", _leave_out(op))
        for op in block.ops:
            yield from _of_groups(op, axes)


# --- values that are each other ---


def _exchanged_values(block: Block, rng: random.Random) -> Iterator[Mutation]:
    """From the later one on, each of two values of one type is used where the other was."""
    by_type: dict[Attribute, list[SSAValue]] = {}
    for value in (*block.args, *(result for op in block.ops for result in op.results)):
        by_type.setdefault(value.type, []).append(value)
    pairs = [pair for values in by_type.values() for pair in combinations(values[-12:], 2)]
    for first, second in rng.sample(pairs, min(PAIRS, len(pairs))):
        made_by = second.owner if isinstance(second.owner, Operation) else block.first_op
        if made_by is not None and not isinstance(made_by, ReturnOp):
            yield Mutation(
                "exchanged values", made_by, f"%{_name(first)} and %{_name(second)}", _exchange(first, second)
            )


def _name(value: SSAValue) -> str:
    return value.name_hint or type(value.owner).__name__


def _exchange(first: SSAValue, second: SSAValue) -> Edit:
    def edit(copy: Copy) -> None:
        a, b = copy.values[first], copy.values[second]
        block = b.owner if isinstance(b.owner, Block) else b.owner.parent
        assert block is not None
        order = {op: number for number, op in enumerate(block.ops)}
        since = order[b.owner] if isinstance(b.owner, Operation) else -1
        uses = [(use, b) for use in a.uses if order.get(use.operation, -1) > since] + [(use, a) for use in b.uses]
        for use, value in uses:
            use.operation.operands[use.index] = value

    return edit


# --- collectives of other devices ---


def _regroup(first: CollectiveOp, second: CollectiveOp) -> Edit:
    """Their last participants change places; both happen where the second one was."""

    def edit(copy: Copy) -> None:
        a, b = copy.ops[first], copy.ops[second]
        block = b.parent
        assert block is not None
        for one, other in ((a, b), (b, a)):
            made = _made_again(one, [*one.operands[:-1], other.operands[-1]], [*one.results[:-1], other.results[-1]])
            block.insert_op_before(made, b)
            for result, own in zip([*one.results[:-1], other.results[-1]], made.results, strict=True):
                result.replace_all_uses_with(own)
        for op in (a, b):
            op.detach()
            op.erase()

    return edit


def _leave_out(op: CollectiveOp) -> Edit:
    """The last participant keeps what it has."""

    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        block = mutant.parent
        assert block is not None
        mutant.results[-1].replace_all_uses_with(mutant.operands[-1])
        if len(mutant.operands) > 2:
            made = _made_again(mutant, mutant.operands[:-1], mutant.results[:-1])
            block.insert_op_before(made, mutant)
            for old, new in zip(mutant.results[:-1], made.results, strict=True):
                old.replace_all_uses_with(new)
        else:
            mutant.results[0].replace_all_uses_with(mutant.operands[0])
        mutant.detach()
        mutant.erase()

    return edit


def _made_again(op: Operation, operands: Sequence[SSAValue], like: Sequence[SSAValue]) -> Operation:
    return type(op).create(
        operands=list(operands),
        result_types=[value.type for value in like],
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )


# --- devices that are written once ---


def _of_groups(op: Operation, axes: Sequence[str]) -> Iterator[Mutation]:
    over = op.properties.get("over")
    for axis in axes if isinstance(over, StringAttr) else ():
        if axis != cast(Any, over).data:
            yield Mutation("axis", op, f"over {axis}", _set(op, "over", StringAttr(axis)))
    by_rank = op.attributes.get("dist.by_rank") or op.properties.get("dist.by_rank")
    if isinstance(by_rank, ByRankAttr):
        entries = [dict(entry.data) for entry in by_rank.entries]
        for i, j in combinations(range(len(entries)), 2):
            if entries[i] != entries[j]:
                changed = [*entries]
                changed[i], changed[j] = changed[j], changed[i]
                edit = _set(op, "dist.by_rank", ByRankAttr(by_rank.axes, changed))
                yield Mutation("numbers of devices", op, f"{i} and {j}", edit)


def _set(op: Operation, name: str, attribute: Attribute) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        (mutant.properties if name in mutant.properties else mutant.attributes)[name] = attribute

    return edit
