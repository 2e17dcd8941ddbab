"""In goes the entry of a placed program whose reductions stand where their operands are made; out comes the same with neighbouring
all-reduces of the same devices joined: one message of a tuple of tensors, up to so many bytes, as PyTorch's DDP has (Li et al., VLDB 2020)."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation

from distir.dialects.dist import AllReduceOp, PackOp, UnpackOp
from distir.dialects.dist.attributes import placement, placements
from distir.interpreters.work import type_bytes


def fill_buckets(block: Block, most_bytes: int) -> None:
    """Joins all-reduces; a bucket is sent where its last member was, and ends before the first use of any of its results. A single
    larger message stays as it is."""
    filling: dict[object, list[AllReduceOp]] = {}
    bucket_of: dict[Operation, object] = {}
    for op in list(block.ops):
        for value in op.operands:
            if isinstance(value.owner, AllReduceOp) and (used := bucket_of.get(value.owner)) is not None:
                _join(filling.pop(used, []))
        if not isinstance(op, AllReduceOp) or not _may_join(op):
            continue
        key = op.reduction, op.operands[0].type.element_type, *placements(v.type for v in op.operands)  # pyright: ignore
        members = filling.setdefault(key, [])
        if sum(type_bytes(member.operands[0].type) for member in [*members, op]) > most_bytes:
            _join(members)
            members = filling[key] = []
        members.append(op)
        bucket_of[op] = key
    for members in filling.values():
        _join(members)


def _may_join(op: AllReduceOp) -> bool:
    """Whether it reduces tensors of several devices."""
    are_tensors = all(isinstance(v.type, TensorType) and placement(v.type) is not None for v in op.operands)
    return are_tensors and op.axis is None and len(op.operands) > 1


def _join(members: list[AllReduceOp]) -> None:
    """Replaces all-reduces by one of tuples, where the last one is."""
    if len(members) < 2:
        return
    last, block = members[-1], members[-1].parent
    assert block is not None
    packs = [PackOp(values) for values in zip(*[member.operands for member in members], strict=True)]
    joined = AllReduceOp([pack.output for pack in packs], last.reduction.data)
    unpacks = [UnpackOp(result) for result in joined.results]
    block.insert_ops_before([*packs, joined, *unpacks], last)
    for number, member in enumerate(members):
        for result, unpack in zip(member.results, unpacks, strict=True):
            unpack.results[number].name_hint = result.name_hint
            result.replace_all_uses_with(unpack.results[number])
        block.erase_op(member)
