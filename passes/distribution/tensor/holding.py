"""Parameters of repeated layers, held inside the functions that take them (`interpreters/held`): a search then sees a program as wide as one
layer. The program that is written has them as arguments of the entry, with the same figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from distir.dialects.sharding import Choice, Replicate, UseFactor, UsePartial
from distir.interpreters.entry import entry_function
from distir.interpreters.held import HeldOp
from distir.passes.distribution.options import RULE, rule_of
from distir.passes.structure import (
    argument_attributes,
    functions,
    give_body,
    name_alike,
    result_attributes,
    stands_for,
    text,
)


def own_parameters(module: ModuleOp) -> dict[str, list[int]]:
    """Which arguments of functions are parameters that nothing but one call of the entry takes or updates, in all of their calls."""
    entry = entry_function(module)
    arguments = argument_attributes(entry)
    updated = {text(a, "dist.name", "") for a in result_attributes(entry)}
    free = {
        value
        for value, known in zip(entry.body.block.args, arguments, strict=True)
        if text(known, "dist.role", "input") == "parameter"
        and text(known, "dist.name", "") not in updated
        and isinstance(value.type, TensorType)
        and value.has_one_use()
    }
    calls = defaultdict[str, list[CallOp]](list)
    for function in functions(module).values():
        for op in function.walk():
            if isinstance(op, CallOp):
                calls[op.callee.string_value()].append(op)
    found: dict[str, list[int]] = {}
    for name, same in calls.items():
        given = zip(*[call.operands for call in same], strict=True)
        found[name] = [i for i, values in enumerate(given) if free.issuperset(values)]
    return found


def without_addends(
    module: ModuleOp, own: Mapping[str, Sequence[int]], choices: Mapping[int, Choice]
) -> dict[str, frozenset[int]]:
    """Of these arguments of functions, those that no operation takes as addends."""
    table, sites = functions(module), site_numbers(module)
    found = {
        name: frozenset([i for i in positions if not _adds(table[name].body.block.args[i], choices, sites)])
        for name, positions in own.items()
    }
    return {name: positions for name, positions in found.items() if positions}


def _adds(argument: BlockArgument, choices: Mapping[int, Choice], sites: Mapping[Operation, int]) -> bool:
    """Whether an operation takes it as an addend, or may."""
    for use in argument.uses:
        op = use.operation
        if op not in sites or use.index in _addends(op, choices.get(sites[op], Replicate())):
            return True
    return False


def _addends(op: Operation, choice: Choice) -> tuple[int, ...]:
    """Which operands of an operation are addends, whatever shapes the others have."""
    rule = rule_of(op)
    match choice:
        case UsePartial(index) if rule is not None:
            return rule.partials[index].operands
        case UseFactor(factor) if rule is not None:
            partner = rule.partner(factor)
            return partner.operands if partner is not None else ()
        case _:
            return ()


def site_numbers(module: ModuleOp) -> dict[Operation, int]:
    """The operations with rules, in order."""
    ops = [op for f in functions(module).values() for op in f.body.block.ops if RULE in op.attributes]
    return {op: number for number, op in enumerate(ops)}


def holding(module: ModuleOp, held: Mapping[str, frozenset[int]]) -> ModuleOp:
    """A copy of an annotated module whose functions hold these of their arguments."""
    own: list[Operation] = []
    entry = entry_function(module)
    for name, function in functions(module).items():
        if function is entry:
            own.append(_narrowed(entry, held))
        else:
            own.append(copy := function.clone())
            if name in held:
                _hold(copy, held[name])
    return ModuleOp(own, dict(module.attributes))


def _hold(function: FuncOp, held: frozenset[int]) -> None:
    """Puts operations in place of these arguments."""
    old = function.body.block
    kept = [argument for argument in old.args if argument.index not in held]
    new = Block(arg_types=[argument.type for argument in kept])
    mapping: dict[SSAValue, SSAValue] = dict(zip(kept, new.args, strict=True))
    for argument in old.args:
        if argument.index in held:
            new.add_op(op := HeldOp(argument.type))
            mapping[argument] = op.output
    for argument, value in mapping.items():
        name_alike([value], argument.name_hint)
        argument.replace_all_uses_with(value)
    for op in list(old.ops):
        op.detach()
        new.add_op(op)
    give_body(function, new)
    if function.arg_attrs is not None:
        function.arg_attrs = _without(function.arg_attrs, held)


def held_of_entry(entry: FuncOp, found: Mapping[str, frozenset[int]]) -> set[int]:
    """Which arguments of the entry functions hold that hold these of theirs."""
    held: set[int] = set()
    for op in entry.body.block.ops:
        if isinstance(op, CallOp):
            own = [op.operands[i] for i in found.get(op.callee.string_value(), ())]
            held.update([v.index for v in own if isinstance(v, BlockArgument)])
    return held


def _narrowed(entry: FuncOp, found: Mapping[str, frozenset[int]]) -> FuncOp:
    """A copy of the entry without the arguments that functions hold."""
    held = held_of_entry(entry, found)
    kept = [argument for argument in entry.body.block.args if argument.index not in held]
    body = Block(arg_types=[argument.type for argument in kept])
    mapping: dict[SSAValue, SSAValue] = {}
    for old, new in zip(kept, body.args, strict=True):
        name_alike([new], old.name_hint)
        mapping[old] = new
    for op in entry.body.block.ops:
        if isinstance(op, CallOp):
            gone = found.get(op.callee.string_value(), frozenset())
            copy = CallOp.create(
                operands=[mapping[v] for i, v in enumerate(op.operands) if i not in gone],
                result_types=[result.type for result in op.results],
                properties=op.properties,
                attributes=op.attributes,
                location=op.location,
            )
            body.add_op(copy)
            stands_for(op, copy, mapping)
        else:
            body.add_op(op.clone(mapping))
    last = body.last_op
    assert isinstance(last, ReturnOp)
    types = [argument.type for argument in kept], [v.type for v in last.operands]
    copy = FuncOp(entry.sym_name.data, types, Region(body), entry.sym_visibility)
    if entry.arg_attrs is not None:
        copy.arg_attrs = _without(entry.arg_attrs, held)
    copy.res_attrs = entry.res_attrs
    return copy


def _without(attributes: ArrayAttr[DictionaryAttr], held: Set[int]) -> ArrayAttr[DictionaryAttr]:
    return ArrayAttr([each for i, each in enumerate(attributes.data) if i not in held])
