"""`decompose`: an annotated program goes in; out comes one in which operations that would make a dim of a weight whole are the parts that
their library defines them by, which do not.

The softmax of a loss over a vocabulary that is cut is the case that people know: the parts exchange a maximum and a sum of each row, and the
logits are never gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

if TYPE_CHECKING:
    from distir.dialects.sharding import Rule
    from distir.passes.distribution.space import Reach

DECOMPOSED = "dist.decomposed"
"""On a module in which operations were replaced by their parts: the batch dims that were given."""


def prepare_like(sequential: ModuleOp, distributed: ModuleOp) -> None:
    """Annotates the program that a distributed one was made of, for proof; operations are replaced in it as they were there."""
    from distir.passes.dtp_parallelize import prepare
    from distir.passes.recognise_attention import RECOGNISED

    prepare(Context(), sequential, RECOGNISED in distributed.attributes)
    if isinstance(batch := distributed.attributes.get(DECOMPOSED), StringAttr):
        DecomposePass(batch.data).apply(Context(), sequential)


@dataclass(frozen=True)
class DecomposePass(ModulePass):
    """Replaces operations by their parts where a dim of a weight (a vocabulary) reaches them, their rule does not cut it, and the rules of all
    parts do. Operations that take parameters (normalisations) stay: over what they normalise, activations are whole in any case.

    Requires: rules. Ensures: rules on the parts too, equal semantics; parts are no larger than what the operation takes and gives."""

    name = "decompose"
    batch: str = ""
    """Batch dims, as in "x:0,label:0"; none: dim 0 of inputs and labels."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.batch.batch_axis import parse_batch
        from distir.passes.distribution.space import Reach, model_values
        from distir.passes.structure import calls_first, functions

        entry = entry_function(op)
        batch = parse_batch(self.batch, entry)
        refused: set[Operation] = set()
        is_changed = True
        while is_changed:  # what is cut now reaches further
            reach = Reach(op, entry, batch)
            ordered = calls_first(op, entry.sym_name.data)
            model = model_values(ordered, entry, functions(op))
            found = [
                each
                for function in ordered
                for each in function.body.block.ops
                if each not in refused and not model.intersection(each.operands) and _whole(each, reach)
            ]
            refused.update(each for each in found if not _replace(ctx, each, reach))
            if is_changed := any(each not in refused for each in found):
                op.attributes[DECOMPOSED] = StringAttr(self.batch)


def _whole(op: Operation, reach: Reach) -> list[tuple[int, int]]:
    """Operands and dims that are of a weight and that the rule of the operation does not cut."""
    from distir.passes.distribution.options import rule_of

    rule = rule_of(op)
    return [] if rule is None else [(i, d) for i, d in _uncut(op, rule) if reach.is_weight(op.operands[i], d)]


def _uncut(op: Operation, rule: Rule | None) -> list[tuple[int, int]]:
    """Operands and dims, of more than one element, that a rule does not cut: without one, all."""
    from distir.passes.structure import shape_of

    dims = [(i, d) for i, operand in enumerate(op.operands) for d, size in enumerate(shape_of(operand)) if size > 1]
    return dims if rule is None else [(i, d) for i, d in dims if rule.inputs[i][d].factor is None]


def _replace(ctx: Context, op: Operation, reach: Reach) -> bool:
    """Puts the parts of an operation in its place, if it has any that cut what it does not."""
    from distir.interpreters.entry import entry_function
    from distir.passes.distribution.options import RULE
    from distir.passes.structure import share_name_hint, stands_for

    parts = _parts_of(op)
    if parts is None or not _cut(ctx, parts, op, _whole(op, reach)):
        return False
    block = entry_function(parts).body.block
    returned = block.last_op
    assert returned is not None
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, dict.fromkeys(op.operands), strict=True))
    ours = op.parent_block()
    assert ours is not None
    for part in list(block.ops):
        if part is returned:
            break
        copy = part.clone(values)
        copy.attributes.update({k: v for k, v in op.attributes.items() if k not in (*copy.attributes, RULE)})
        ours.insert_op_before(copy, op)
        stands_for(part, copy, values)
    for result, made in zip(op.results, returned.operands, strict=True):
        share_name_hint([values[made]], result.name_hint)
        result.replace_all_uses_with(values[made])
    op.detach()
    op.erase()
    return True


def _parts_of(op: Operation) -> ModuleOp | None:
    """The parts of an operation, with shapes of their own types; None where its library does not say, or where they are larger than it is."""
    from distir.frontends.pytorch.parts import parts_of
    from distir.interpreters.entry import entry_function

    if op.dialect_name() != "aten" or (parts := parts_of(op)) is None:
        return None
    inside = [part for part in entry_function(parts).body.block.ops if part.results]
    if len(inside) < 2:
        return None
    largest = max(_elements([*op.operands, *op.results]))
    return parts if max(_elements([v for part in inside for v in part.results])) <= largest else None


def _elements(values: list[SSAValue]) -> list[int]:
    from math import prod

    from distir.passes.structure import shape_of

    return [prod(shape_of(value)) for value in values]


def _cut(ctx: Context, parts: ModuleOp, op: Operation, dims: list[tuple[int, int]]) -> bool:
    """Whether the rules of the parts, which they get, cut these dims of the operation's operands in all parts that they reach."""
    from distir.interpreters.entry import entry_function
    from distir.passes.distribution.options import rule_of
    from distir.passes.distribution.space import link_dims
    from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

    ShardcombineAnnotatePass().apply(ctx, parts)
    entry = entry_function(parts)
    links = link_dims(parts, entry)
    arguments = dict(zip(dict.fromkeys(op.operands), entry.body.block.args, strict=True))
    wanted = {links.find((arguments[op.operands[i]], d)) for i, d in dims}
    inside = [part for part in entry.body.block.ops if part.results]
    return not any(
        links.find((part.operands[i], d)) in wanted for part in inside for i, d in _uncut(part, rule_of(part))
    )
