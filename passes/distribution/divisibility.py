"""What the axes of a mesh could divide, by the rules alone: an annotated program goes in; for the batch and the tensor axis the share of
flops and of parameters that can be cut, and the operators that no axis, or only the batch, can cut, come out.

It is an upper bound for plans: what can be cut one by one need not fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.dialects.sharding import Sharded, UseFactor
from distir.interpreters.walk import values_read
from distir.interpreters.work import type_bytes, work_of
from distir.passes.distribution.options import Option, rule_of
from distir.passes.distribution.space import AxisSpace, Reach
from distir.passes.shardcombine_annotate import is_operator
from distir.passes.structure import AnyCall, argument_attributes, calls_first, executions, functions, shape_of, text


@dataclass(frozen=True)
class AxisShare:
    """What one axis can divide, of the whole program."""

    work: float
    """Of the flops."""
    parameters: float
    """Of the bytes of parameters."""


@dataclass(frozen=True)
class OperatorKind:
    """Operations of one kind that share a limit."""

    name: str
    count: int
    """Executions in one run of the program."""
    work: float
    """Their share of the flops."""
    place: str
    """Where the first of them is."""


@dataclass(frozen=True)
class Divisibility:
    batch: AxisShare
    tensor: AxisShare
    without_rule: list[OperatorKind]
    """Which run whole on every device, largest share of flops first."""
    only_batch: list[OperatorKind]


def divisibility(module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], shards: int = 2) -> Divisibility:
    """Of an annotated program with static shapes, cut in so many shards; `batch` says which dim of which argument the batch is."""
    ordered = calls_first(module, entry.sym_name.data)
    times = executions(ordered, entry)
    reach = Reach(module, entry, batch)
    by_batch = _options(AxisSpace(module, entry, shards, reach.is_batch))
    by_tensor = _options(AxisSpace(module, entry, shards, reach.is_model, reach.is_model, uneven=True))
    flops: Counter[Operation] = Counter()
    for function in ordered:
        runs = times[function.sym_name.data]
        for op in function.body.block.ops:
            if is_operator(op):
                flops[op] = runs * work_of(op).flops
    whole = sum(flops.values()) or 1
    stored = _parameters(entry)
    total = sum(type_bytes(value.type) for value in stored) or 1

    def share(cut: Mapping[Operation, list[Option]]) -> AxisShare:
        held = _cut_values(module, ordered, cut)
        bytes_ = sum(type_bytes(value.type) for value in stored if value in held)
        return AxisShare(sum(flops[op] for op in flops if cut.get(op)) / whole, bytes_ / total)

    counts = {op: times[_function(op).sym_name.data] for op in flops}
    tables = by_batch, by_tensor
    nowhere = [op for op in flops if not _has_rule(op) and _has_dims(op)]
    only = [op for op in flops if _has_rule(op) and tables[0].get(op) and not tables[1].get(op)]
    return Divisibility(
        share(by_batch),
        share(by_tensor),
        _kinds(nowhere, counts, flops, whole),
        _kinds([op for op in only if _touches(op, reach)], counts, flops, whole),
    )


def _options(space: AxisSpace) -> Mapping[Operation, list[Option]]:
    """Of each operation, the ways in which the axis cuts it."""
    space.close()
    return {op: [o for o in options if isinstance(o.choice, UseFactor)] for op, options in space.options.items()}


def _has_rule(op: Operation) -> bool:
    return (rule := rule_of(op)) is not None and bool(rule.combines)


def _has_dims(op: Operation) -> bool:
    """Whether there is anything to cut."""
    return any(n > 1 for v in (*op.operands, *op.results) if isinstance(v.type, TensorType) for n in shape_of(v))


def _touches(op: Operation, reach: Reach) -> bool:
    """Whether it takes a value that a parameter's dim reaches: only of such is it worth to say that the batch alone cuts it."""
    values = [*values_read(op), *op.results]
    return any(reach.is_model(value, d) for value in values for d in range(_rank(value)))


def _rank(value: SSAValue) -> int:
    return len(shape_of(value)) if isinstance(value.type, TensorType) else 0


def _function(op: Operation) -> FuncOp:
    parent = op.parent_op()
    while not isinstance(parent, FuncOp):
        assert parent is not None
        parent = parent.parent_op()
    return parent


def _parameters(entry: FuncOp) -> list[BlockArgument]:
    roles = [text(a, "dist.role", "input") for a in argument_attributes(entry)]
    return [value for value, role in zip(entry.body.block.args, roles, strict=True) if role == "parameter"]


def _cut_values(module: ModuleOp, ordered: Iterable[FuncOp], cut: Mapping[Operation, list[Option]]) -> set[SSAValue]:
    """Values that an operation can take cut; arguments of a call, those that its callee can."""
    table, found = functions(module), set[SSAValue]()
    for function in ordered:  # callees first
        for op in function.body.block.ops:
            if isinstance(op, AnyCall):
                arguments = table[op.callee.string_value()].body.block.args
                found.update(a for a, b in zip(op.operands, arguments, strict=False) if b in found)
                continue
            for option in cut.get(op, ()):
                states = zip(values_read(op), option.operands, strict=True)
                found.update(value for value, state in states if isinstance(state, Sharded))
    return found


def _kinds(
    ops: Iterable[Operation], counts: Mapping[Operation, int], flops: Mapping[Operation, int], whole: int
) -> list[OperatorKind]:
    by_name: dict[str, list[Operation]] = {}
    for op in ops:
        by_name.setdefault(op.name, []).append(op)
    found = [
        OperatorKind(name, sum(counts[op] for op in same), sum(flops[op] for op in same) / whole, place_of(same[0]))
        for name, same in by_name.items()
    ]
    return sorted(found, key=lambda kind: (-kind.work, -kind.count, kind.name))


def place_of(op: Operation) -> str:
    """Where an operation of a model is, for its user: the name of its node, else its value and the parameter next to it."""
    if isinstance(name := op.attributes.get("onnx_node_name"), StringAttr) and name.data:
        return name.data
    value = op.results[0].name_hint if op.results else None
    beside = _nearest_parameter(op)
    said = f"%{value}" if value else f"a {op.name}"
    return f"{said} of {beside}" if beside else said


def _nearest_parameter(op: Operation) -> str | None:
    """The parameter that is fewest operations before it; in a function that is called, that of the first call."""
    pending, seen = list(op.operands), set[SSAValue]()
    while pending:
        following: list[SSAValue] = []
        for value in pending:
            if value in seen:
                continue
            seen.add(value)
            if isinstance(value, BlockArgument):
                if (found := _parameter_name(value)) is not None:
                    return found
            else:
                following.extend(value.owner.operands if isinstance(value.owner, Operation) else ())
        pending = following
    return None


def _parameter_name(argument: BlockArgument) -> str | None:
    """The name of the parameter that an argument of the entry is; of another function, what its first call gives."""
    function = argument.block.parent_op()
    if not isinstance(function, FuncOp):
        return None
    attributes = argument_attributes(function)[argument.index]
    if text(attributes, "dist.role", "") == "parameter":
        return text(attributes, "dist.name", f"argument {argument.index}")
    module, name = function.parent_op(), function.sym_name.data
    calls = module.walk() if isinstance(module, ModuleOp) else ()
    for call in calls:
        if isinstance(call, AnyCall) and call.callee.string_value() == name and argument.index < len(call.operands):
            given = call.operands[argument.index]
            return _parameter_name(given) if isinstance(given, BlockArgument) else None
    return None
