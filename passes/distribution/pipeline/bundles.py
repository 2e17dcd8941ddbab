"""What stage calls take and give together travels as one packed tuple per device: the parameters of a stage, the activations
that its forward part keeps for its backward part, and the addends that leave the microbatch loop (the paper's UnpackTuple).
A call then has a handful of operands however many layers a stage has. Tuples are views: nothing is copied, and memory is
what it would be without them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FunctionType, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from distir.dialects.dist import AccumulateOp, PackOp, UnpackOp
from distir.dialects.reductions import Reduction
from distir.passes.structure import give_body, name_alike

Group = tuple[int, ...]
"""Positions of operands or results that travel together; a single one travels as it is."""


@dataclass(frozen=True)
class Signature:
    """How a stage function takes its operands and gives its results."""

    operands: tuple[Group, ...]
    results: tuple[Group, ...]


def grouped(values: Sequence[SSAValue], key: Callable[[SSAValue], Hashable | None]) -> tuple[Group, ...]:
    """Positions of tensors with equal keys, in order of their first; those whose key is None, and other values, alone."""
    groups: dict[Hashable, list[int]] = {}
    for position, value in enumerate(values):
        found = key(value) if isinstance(value.type, TensorType) else None
        groups.setdefault((position,) if found is None else ("group", found), []).append(position)
    return tuple(map(tuple, groups.values()))


def sole_user(value: SSAValue) -> Operation | None:
    """The operation that uses a value, if only one does, and once."""
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 else None


def travel_packed(function: FuncOp, signature: Signature, ranks: int) -> None:
    """Makes a function over `ranks` devices, whose arguments and results are listed value by value and for each device by
    device, take and give tuples as the signature says: group by group, for each device by device."""
    old = function.body.block
    last = old.last_op
    assert isinstance(last, ReturnOp)
    arguments: list[tuple[SSAValue, list[SSAValue]]] = []
    types = [
        old.args[group[0] * ranks + rank].type
        if len(group) == 1
        else PackOp.packed_type([old.args[i * ranks + rank].type for i in group])
        for group in signature.operands
        for rank in range(ranks)
    ]
    new = Block(arg_types=types)
    given = iter(new.args)
    for group in signature.operands:
        for rank in range(ranks):
            arguments.append((next(given), [old.args[i * ranks + rank] for i in group]))
    instead: dict[SSAValue, SSAValue] = {}
    for argument, members in arguments:
        values: Sequence[SSAValue] = [argument]
        if len(members) > 1:
            unpack = UnpackOp(argument)
            new.add_op(unpack)
            values = unpack.results
            argument.name_hint = "held"
        for member, value in zip(members, values, strict=True):
            name_alike([value], member.name_hint)
            instead[member] = value
    for op in list(old.ops):
        for inner in op.walk() if op.regions else (op,):
            if any(value in instead for value in inner.operands):
                inner.operands = [instead.get(value, value) for value in inner.operands]
        op.detach()
        new.add_op(op)
    returned = list(last.operands)
    new.erase_op(last)
    results = [
        packed([returned[i * ranks + rank] for i in group], new) for group in signature.results for rank in range(ranks)
    ]
    new.add_op(ReturnOp(*results))
    give_body(function, new)


def packed(values: Sequence[SSAValue], block: Block, name: str = "held") -> SSAValue:
    """The values as one: a tuple, unless there is one only."""
    if len(values) == 1:
        return values[0]
    pack = PackOp.create(operands=values, result_types=[PackOp.packed_type([v.type for v in values])])
    pack.output.name_hint = name
    block.add_op(pack)
    return pack.output


def unpacked(value: SSAValue, count: int, block: Block) -> list[SSAValue]:
    """The members of a group of so many."""
    if count == 1:
        return [value]
    unpack = UnpackOp(value)
    block.add_op(unpack)
    return list(unpack.results)


def adding(function: FuncOp, name: str, groups: Sequence[tuple[int, Reduction]], ranks: int) -> FuncOp:
    """A copy of a packed function that adds its addends to sums as it makes them, so that few are there beside the sums. It also
    takes the sums, group by group and for each device by device, and gives them in place of the addends; `groups` are
    numbers of groups of results, with what adds them up."""
    copy = function.clone()
    copy.sym_name = StringAttr(name)
    block = copy.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    for number, reduction in groups:
        for pack in [value.owner for value in last.operands[number * ranks : (number + 1) * ranks]]:
            assert isinstance(pack, PackOp)
            before = block.insert_arg(pack.output.type, len(block.args))
            before.name_hint = pack.output.name_hint = "sums"
            members = UnpackOp(before)
            added = [AccumulateOp(pair, reduction) for pair in zip(members.results, pack.operands, strict=True)]
            for op in added:
                maker = op.operands[1].owner
                if isinstance(maker, Operation):
                    block.insert_op_after(op, maker)
                else:
                    block.insert_op_before(op, pack)
            pack.operands = [op.output for op in added]
            assert block.first_op is not None
            block.insert_op_before(members, block.first_op)
    copy.function_type = FunctionType.from_lists(block.arg_types, [v.type for v in last.operands])
    return copy
