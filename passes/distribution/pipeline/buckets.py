"""In goes a block of a placed program whose collectives stand where their operands are made; out comes the same with neighbouring
collectives that are alike joined: one message of a tuple of tensors, up to so many bytes, as PyTorch's DDP and FSDP have (Li et al., VLDB 2020)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation

from distir.dialects.dist import PackOp, UnpackOp
from distir.dialects.dist.attributes import placement, placements
from distir.dialects.dist.communication import CollectiveOp
from distir.interpreters.walk import uses_of
from distir.interpreters.work import type_bytes


def fill_buckets(block: Block, most_bytes: int) -> None:
    """Joins collectives that take tuples, of equal reduction, dim, element type and devices; a bucket is sent where its last member was, and ends before
    the first use of any of its results. A single larger message stays as it is."""
    filling: dict[object, list[CollectiveOp]] = {}
    bucket_of: dict[Operation, object] = {}
    for op in list(block.ops):
        for value in op.operands:
            if isinstance(value.owner, CollectiveOp) and value.owner in filling.get(bucket_of.get(value.owner), ()):
                _join(filling.pop(bucket_of[value.owner]))
        if not isinstance(op, CollectiveOp) or (key := joins_with(op)) is None:
            continue
        members = filling.setdefault(key, [])
        if sum(map(bytes_of, [*members, op])) > most_bytes:
            _join(members)
            members = filling[key] = []
        members.append(op)
        bucket_of[op] = key
    for members in filling.values():
        _join(members)


def joins_with(op: CollectiveOp) -> Hashable | None:
    """What two collectives have in common that may be one; None where it is not of tensors of several devices, or may not be of tuples."""
    are_tensors = all(isinstance(v.type, TensorType) and placement(v.type) is not None for v in op.operands)
    if not op.TAKES_TUPLES or not are_tensors or (op.axis is None and len(op.operands) < 2):
        return None
    element = cast(TensorType[Any], op.operands[0].type).element_type
    return type(op), *op.properties.items(), element, *placements(v.type for v in op.operands)


def bytes_of(op: CollectiveOp) -> int:
    """The size of the whole tensor, which operands or results are parts of."""
    return max(type_bytes(v.type) for v in (op.operands[0], op.results[0]))


def _join(members: list[CollectiveOp]) -> None:
    """Replaces collectives by one of tuples, where the last one is, which is unpacked where a result is first used."""
    if len(members) < 2:
        return
    last, block = members[-1], members[-1].parent
    assert block is not None
    packs = [PackOp(values) for values in zip(*[member.operands for member in members], strict=True)]
    types = [PackOp.packed_type([v.type for v in values]) for values in zip(*[m.results for m in members], strict=True)]
    joined = type(last).create(
        operands=[pack.output for pack in packs], result_types=types, properties=dict(last.properties)
    )
    unpacks = [UnpackOp(result) for result in joined.results]
    block.insert_ops_before([*packs, joined], last)
    block.insert_ops_before(unpacks, _first_use(members) or last)
    for number, member in enumerate(members):
        for result, unpack in zip(member.results, unpacks, strict=True):
            unpack.results[number].name_hint = result.name_hint
            result.replace_all_uses_with(unpack.results[number])
        block.erase_op(member)


def _first_use(members: list[CollectiveOp]) -> Operation | None:
    """The first operation after them that uses any of their results."""
    users = {use.operation for member in members for result in member.results for use in uses_of(result)}
    op = members[-1].next_op
    while op is not None and op not in users:
        op = op.next_op
    return op
