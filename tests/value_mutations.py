"""Faults in what a single operation computes: a module goes in; mutations come out that exchange an operator for another of the module, change a
constant or a word, do on one device alone what several were to do together, or change what a region says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from distir.dialects.dist.attributes import placement
from distir.dialects.dist.communication import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    CollectiveOp,
    ReduceScatterOp,
    SendOp,
)
from distir.dialects.dist.local import AccumulateOp, ConcatOp, SliceOp, ZerosOp
from distir.dialects.onnx import TensorAttr
from distir.dialects.reductions import Reduction
from tests.mutation import Copy, Edit, Mutation

OTHERS = 2
"""Other operators and words that one is exchanged for."""


def value_mutations(module: ModuleOp, rng: random.Random) -> Iterator[Mutation]:
    operators: dict[Any, list[Operation]] = {}
    words: dict[Any, set[str]] = {}
    for op in module.walk():
        known = operators.setdefault(_signature(op), [])
        if op.name not in [other.name for other in known]:
            known.append(op)
        for name, attribute in op.properties.items():
            if isinstance(attribute, StringAttr) and not isinstance(op, FuncOp):
                words.setdefault((op.dialect_name(), name), set()).add(attribute.data)
    for function in module.ops:
        if not isinstance(function, FuncOp) or function.is_declaration:
            continue
        for op in function.body.block.ops:
            others = [other for other in operators[_signature(op)] if other.name != op.name]
            if op.dialect_name() not in ("dist", "func", "rank"):
                for other in rng.sample(others, min(OTHERS, len(others))):
                    yield Mutation("operator", op, other.name, _exchanged(op, other))
            for name, attribute in op.properties.items():
                if isinstance(attribute, TensorAttr):
                    for says, changed in _other_constants(attribute, rng):
                        yield Mutation("constant", op, says, _set(op, name, changed))
                elif isinstance(attribute, StringAttr) and op.dialect_name() not in ("dist", "func", "rank"):
                    known = sorted(words[op.dialect_name(), name] - {attribute.data})
                    for word in rng.sample(known, min(OTHERS, len(known))):
                        yield Mutation("word", op, f"{name} = {word}", _set(op, name, StringAttr(word)))
            if isinstance(op, CollectiveOp | SendOp):
                yield Mutation("alone", op, "each device has what it had", _alone(op, False))
                yield Mutation("alone", op, "what others have is zero", _alone(op, True))
            if isinstance(op, AccumulateOp):
                yield Mutation("forgotten", op, "what was summed before is zero", _forgotten(op))


def _signature(op: Operation) -> Any:
    """What operators have in common that may stand for each other."""
    return op.dialect_name(), len(op.operands), len(op.results), len(op.regions), tuple(sorted(op.properties))


def _exchanged(op: Operation, other: Operation) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        made = type(other).create(
            operands=list(mutant.operands),
            result_types=[r.type for r in mutant.results],
            properties=dict(mutant.properties),
            attributes=dict(mutant.attributes),
            regions=[region.clone() for region in mutant.regions],
        )
        _replace(mutant, [made], made.results)

    return edit


def _replace(op: Operation, made: list[Operation], results: Any) -> None:
    block = op.parent
    assert block is not None
    block.insert_ops_before(made, op)
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()


def _set(op: Operation, name: str, attribute: Attribute) -> Edit:
    def edit(copy: Copy) -> None:
        copy.ops[op].properties[name] = attribute

    return edit


def _other_constants(constant: TensorAttr, rng: random.Random) -> Iterator[tuple[str, TensorAttr]]:
    """With one element that is another, and with all."""
    array = constant.to_numpy()
    if array.dtype.kind not in "fiub" or not array.size:
        return
    for everywhere in (False, True):
        changed = np.array(array)
        place = ... if everywhere else rng.randrange(array.size)
        flat = changed.reshape(-1)
        flat[place] = ~flat[place] if array.dtype.kind == "b" else flat[place] + 1
        where = "everywhere" if everywhere else f"at {place}"
        yield f"more by one {where}", TensorAttr.from_bytes(constant.type, flat.tobytes())


# --- communication that does not happen ---


def _alone(op: CollectiveOp | SendOp, with_zeros: bool) -> Edit:
    """Each device makes the result, of the right shape, of what it has itself; or of that and of zeros."""

    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        if len(mutant.operands) != len(mutant.results):
            raise ValueError("it gives to others than it takes from")
        made: list[Operation] = []
        found = [_own(mutant, i, with_zeros, made) for i in range(len(mutant.operands))]
        _replace(mutant, made, found)

    return edit


def _own(op: Operation, number: int, with_zeros: bool, made: list[Operation]) -> SSAValue:
    value, result = op.operands[number], op.results[number]
    on = placement(result.type)
    if placement(value.type) != on:
        raise ValueError("another device has the result")
    count = len(op.operands) if on is None or on.count == 1 else 0
    if not isinstance(value.type, TensorType):
        raise ValueError("a tuple is not made of parts")
    shape = value.type.get_shape()
    if isinstance(op, AllReduceOp) and not with_zeros and count:
        new: Operation = AccumulateOp([value] * count, Reduction.SUM)
    elif isinstance(op, AllGatherOp) and count:
        parts: list[SSAValue] = [value] * count
        if with_zeros:
            zeros = ZerosOp(value.type)
            made.append(zeros)
            parts = [value if i == number else zeros.output for i in range(count)]
        new = ConcatOp(parts, op.dim.value.data)
    elif isinstance(op, ReduceScatterOp) and not with_zeros:
        size, dim = cast(Any, result.type).get_shape(), op.dim.value.data
        start = size[dim] * number if count else 0
        new = SliceOp(value, [(start, start + size[d]) if d == dim else (0, n) for d, n in enumerate(shape)])
    elif not isinstance(op, AllToAllOp) and with_zeros:
        new = ZerosOp(result.type)
    else:
        raise ValueError("nothing of its own is like the result")
    made.append(new)
    if new.results[0].type != result.type:
        raise ValueError("another type")
    return new.results[0]


def _forgotten(op: AccumulateOp) -> Edit:
    def edit(copy: Copy) -> None:
        mutant = copy.ops[op]
        zeros = ZerosOp(mutant.operands[0].type)
        assert mutant.parent is not None
        mutant.parent.insert_op_before(zeros, mutant)
        mutant.operands[0] = zeros.output

    return edit
