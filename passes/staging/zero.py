"""What each device stores (ZeRO), pinned. In go a module and a stage of ZeRO; out comes `dist.stored` on arguments
of the entry and of the loop over microbatches, for parameters, gradients and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, SSAValue

from distir.dialects.dist import MicrobatchesOp
from distir.dialects.sharding import RuleAttr
from distir.interpreters.entry import entry_function
from distir.interpreters.work import is_first_addend
from distir.passes.distribution.options import RULE
from distir.passes.distribution.pins import ADDENDS, CUT, STORED, WHOLE
from distir.passes.distribution.space import made_of_model
from distir.passes.structure import AnyCall, argument_attributes, functions, shape_of, text


def pin_stored(module: ModuleOp, entry: str, stage: int, axes: Sequence[str]) -> None:
    """Pins state, with stage 2 sums too, with stage 3 parameters too, with stage 0 nothing; what stays whole is pinned as that. Parameters of stage 3 are in parts
    wherever functions take them: each gathers what it uses, a backward part too, in every microbatch."""
    main = entry_function(module, entry)
    kinds = {"state": CUT if stage else WHOLE, "parameter": CUT if stage == 3 else WHOLE}
    roles = [text(a, "dist.role", "input") for a in argument_attributes(main)]
    stored = {v: kinds[role] for v, role in zip(main.body.block.args, roles, strict=True) if role in kinds}
    write_stored(main, stored, axes)
    for loop in [op for op in main.body.block.ops if isinstance(op, MicrobatchesOp)]:
        body = functions(module)[loop.callee.string_value()]
        sums = body.body.block.args[len(loop.same) : len(loop.operands)]
        write_stored(body, {v: CUT if stage > 1 else ADDENDS for v in sums if shape_of(v)}, axes)
    for op in [op for op in module.walk() if stage > 1 and is_first_addend(op)]:
        if isinstance(rule := op.attributes.get(RULE), RuleAttr):
            op.attributes[RULE] = RuleAttr(replace(rule.data, partials=()))
    if stage == 3:
        table = functions(module)
        made = _made_by_all(table, made_of_model(main, table, ("parameter",)) - made_of_model(main, table, ()))
        for function in table.values():
            if function is not main:
                write_stored(function, {v: CUT for v in function.body.block.args if v in made and shape_of(v)}, axes)


def _made_by_all(table: Mapping[str, FuncOp], made: set[SSAValue]) -> set[SSAValue]:
    """Of values that are made of parameters for some caller, those that are so for each: queries that a first layer is given may be a parameter."""
    mixed, known = set[SSAValue](), -1
    while known < len(mixed):
        known = len(mixed)
        for op in (op for function in table.values() for op in function.body.block.ops):
            if isinstance(op, AnyCall):
                inside = table[op.callee.string_value()].body.block
                returned = inside.last_op.operands if inside.last_op else ()
                given = zip(op.operands, inside.args, strict=False)
                mixed.update([b for a, b in given if a not in made or a in mixed])
                mixed.update([a for a, b in zip(op.results, returned, strict=False) if b in mixed])
            elif any(v in mixed for v in op.operands):
                mixed.update(op.results)
    return made - mixed


def write_stored(function: FuncOp, stored: Mapping[BlockArgument, str], axes: Sequence[str]) -> None:
    """Pins what is stored of these arguments along axes."""
    written: list[DictionaryAttr] = []
    for argument, known in zip(function.body.block.args, argument_attributes(function), strict=True):
        attributes = dict(known)
        if argument in stored:
            before = attributes.get(STORED)
            pinned = before.data if isinstance(before, DictionaryAttr) else {}
            attributes[STORED] = DictionaryAttr({**pinned, **{axis: StringAttr(stored[argument]) for axis in axes}})
        written.append(DictionaryAttr(attributes))
    function.arg_attrs = ArrayAttr(written)
