"""The options of every operation along one mesh axis. In go a module with rules, and the dims that the axis may cut;
out come the allowed options of each operation.

Factors link dims across the program. Pieces (the fused QKV weight) start at
the operations whose rules demand them and are followed through the program in both directions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.sharding import (
    Gather,
    InputDim,
    Pieces,
    Reduce,
    Rule,
    Sharded,
    UseFactor,
    Windowed,
    different,
    extent_of,
    mapped,
)
from distir.interpreters.walk import values_read
from distir.passes.distribution.options import Option, options, rule_of
from distir.passes.structure import (
    AnyCall,
    argument_attributes,
    calls_first,
    functions,
    is_stated,
    shape_of,
    text,
    user_of,
)

MOST_PIECES = 16
"""Longer piece lists are not followed, unless they are of a factor inside others, nor converted: no layout in use has them, they
would multiply the options, and gathering the heads of each row would copy as many slices as there are heads and rows."""

Dim = tuple[SSAValue, int]


class Links:
    """Dims that a cut links: a union-find over (value, dim), which are numbered as they are met, the dims of a value in a row."""

    def __init__(self) -> None:
        self._numbers: dict[SSAValue, range] = {}
        self._parent: list[int] = []

    def find(self, dim: Dim) -> int:
        """The same number for dims that are linked, and for no others."""
        value, place = dim
        return self._root(self._of(value)[place])

    def join(self, dims: Iterable[Dim]) -> None:
        roots = [self.find(d) for d in dims]
        for other in roots[1:]:
            self._parent[other] = roots[0]

    def join_values(self, one: SSAValue, other: SSAValue) -> None:
        """Links each dim of a value with that of another of its shape."""
        for mine, its in zip(self._of(one), self._of(other), strict=True):
            self._parent[self._root(its)] = self._root(mine)

    def _of(self, value: SSAValue) -> range:
        """The numbers of a value's dims."""
        if (found := self._numbers.get(value)) is None:
            found = self._numbers[value] = range(len(self._parent), len(self._parent) + _rank(value))
            self._parent.extend(found)
        return found

    def _root(self, number: int) -> int:
        parent, root = self._parent, number
        while parent[root] != root:
            root = parent[root]
        while parent[number] != root:
            parent[number], number = root, parent[number]
        return root


def link_dims(module: ModuleOp, entry: FuncOp) -> Links:
    """Links all dims that carry one factor, through operations and calls; a factor inside another in a merged dim is not
    that dim, and a constant links none of its users, of which each has it in its own parts."""
    links, table = Links(), functions(module)
    for function in calls_first(module, entry.sym_name.data):
        for op in function.body.block.ops:
            if isinstance(op, AnyCall):
                callee = table[op.callee.string_value()].body.block
                returned = callee.last_op.operands if callee.last_op else ()
                for a, b in (*zip(op.operands, callee.args, strict=False), *zip(op.results, returned, strict=True)):
                    links.join_values(b, a)
            elif (rule := rule_of(op)) is not None:
                for factor, combines in rule.combines.items():
                    dims = [(v, d) for i, d in _carriers(rule.inputs, factor) if not is_stated(v := op.operands[i])]
                    gathers = [(r, c) for r, c in zip(op.results, combines, strict=True) if isinstance(c, Gather)]
                    dims += [(r, c.dim) for r, c in gathers if not c.outer]
                    links.join(dims)
    return links


def _summed(op: Operation, rule: Rule) -> Iterator[tuple[int, int]]:
    """Operands and dims, of more than one element, whose factors a result is a sum over."""
    for factor, combines in rule.combines.items():
        if any(isinstance(c, Reduce) for c in combines):
            yield from [(i, d) for i, d in _carriers(rule.inputs, factor) if shape_of(op.operands[i])[d] > 1]


def _rank(value: SSAValue) -> int:
    return len(shape_of(value))


def _carriers(inputs: Iterable[Iterable[InputDim]], factor: str) -> list[tuple[int, int]]:
    """Operands and dims in which the factor is the outermost."""
    return [(i, d) for i, dims in enumerate(inputs) for d, dim in enumerate(dims) if dim.factor == factor]


class AxisSpace:
    """Options of every operation along one axis of `shards`, closed under pieces. `allowed` says which dims of which values
    the axis may cut, `inside` which factors it may cut inside others in a merged dim too, by the dims that they have of
    their own: the heads inside rows of heads, and not what is inside every head. `uneven` allows shards that differ in extent or overlap."""

    def __init__(
        self,
        module: ModuleOp,
        entry: FuncOp,
        shards: int,
        allowed: Callable[[SSAValue, int], bool],
        inside: Callable[[SSAValue, int], bool] = lambda value, dim: False,
        uneven: bool = False,
    ):
        self.module, self.entry, self.shards = module, entry, shards
        self.functions = calls_first(module, entry.sym_name.data)
        self.options: dict[Operation, list[Option]] = {}
        self._table = functions(module)
        self._allowed, self._inside, self._uneven = allowed, inside, uneven
        self._pieces: dict[SSAValue, set[Sharded]] = defaultdict(set)
        self._within: dict[SSAValue, set[Sharded]] = defaultdict(set)
        """Those of the pieces that cut a factor inside others."""
        self._callers: dict[Operation | None, list[Operation]] = defaultdict(list)
        for function in self.functions:
            for op in function.body.block.ops:
                if isinstance(op, AnyCall):
                    self._callers[self._table[op.callee.string_value()]].append(op)

    def close(self) -> None:
        """Options with the pieces that neighbours use, until nothing is added."""
        pending = dict.fromkeys(
            op for function in self.functions for op in function.body.block.ops if not isinstance(op, ReturnOp)
        )
        while pending:
            op = next(iter(pending))
            del pending[op]
            for value in self._visit_call(op) if isinstance(op, AnyCall) else self._visit(op):
                pending.update(dict.fromkeys(self._neighbours(value)))

    def _neighbours(self, value: SSAValue) -> list[Operation]:
        """The ops whose options depend on a value's pieces; those of a function's argument or result are its callers."""
        ops = [user_of(value, use) for use in value.uses]
        callers = [c for op in ops if isinstance(op, ReturnOp) for c in self._callers[op.parent_op()]]
        if isinstance(value, BlockArgument):
            callers += self._callers[value.block.parent_op()]
        else:
            ops.append(cast(OpResult, value).op)
        return [op for op in (*ops, *callers) if not isinstance(op, ReturnOp)]

    def _visit(self, op: Operation) -> list[SSAValue]:
        """Renews the options of an op; returns the values for which it found new pieces."""
        values = (*values_read(op), *op.results)
        cuts = {state.pieces for v in values for state in self._pieces[v]}
        scaled = _scaled(cuts, op) if cuts else ()
        available = options(op, self.shards, scaled, uneven=self._uneven, overlapping=self._uneven)
        found = [o for o in available if self._follows(values, o)]
        beside = any([v in self._within for v in values])
        inside = {o for o in found if self._is_inside(op, o) or (beside and self._touches(self._within, values, o))}
        outermost = _outermost(op, [o for o in found if o in inside or self.is_allowed(op, o)], self.shards)
        self.options[op] = [o for o in found if o in inside or o in outermost]
        changed: list[SSAValue] = []
        for option in self.options[op]:
            for value, state in zip(values, (*option.operands, *option.results), strict=True):
                if not isinstance(state, Sharded) or (len(state.pieces) < 2 and option not in inside):
                    continue
                state = replace(state, blocks=())
                is_new = option in inside and state not in self._within[value]
                if option in inside:
                    self._within[value].add(state)
                if 1 < len(state.pieces) and (option in inside or len(state.pieces) <= MOST_PIECES):
                    is_new = is_new or state not in self._pieces[value]
                    self._pieces[value].add(state)
                if is_new:
                    changed.append(value)
        return changed

    def _is_inside(self, op: Operation, option: Option) -> bool:
        """Whether the option cuts a factor inside others in a merged dim, and may."""
        rule, choice = rule_of(op), option.choice
        if rule is None or not isinstance(choice, UseFactor) or not rule.outside(choice.factor):
            return False
        own = [(op.operands[i], d) for i, d in _carriers(rule.inputs, choice.factor)]
        combines = zip(op.results, rule.combines[choice.factor], strict=True)
        own += [(r, c.dim) for r, c in combines if isinstance(c, Gather) and not c.outer]
        return any(self._inside(value, dim) for value, dim in own)

    def _follows(self, values: Sequence[SSAValue], option: Option) -> bool:
        """Whether pieces that the rule does not demand are those of a value of the op, in the dim that the option cuts."""
        demanded = not isinstance(option.choice, UseFactor) or not option.choice.pieces
        return demanded or self._touches(self._pieces, values, option)

    def _touches(self, known: Mapping[SSAValue, set[Sharded]], values: Sequence[SSAValue], option: Option) -> bool:
        """Whether a value of the op is known to be cut as the option cuts it."""
        states = (*option.operands, *option.results)
        return any(
            isinstance(state, Sharded) and (replace(state, blocks=()) if state.blocks else state) in known[value]
            for value, state in zip(values, states, strict=True)
        )

    def _visit_call(self, call: AnyCall) -> list[SSAValue]:
        """Shares pieces between a call's operands and results and those of its callee."""
        callee = self._table[call.callee.string_value()].body.block
        returned = callee.last_op.operands if callee.last_op else ()
        changed: list[SSAValue] = []
        pairs = [*zip(call.operands, callee.args, strict=False), *zip(call.results, returned, strict=True)]
        for known in (self._pieces, self._within):
            for a, b in pairs if known else ():
                if (of_a := known.get(a)) != (of_b := known.get(b)):
                    union = (of_a or set()) | (of_b or set())
                    for value in (a, b):
                        if known[value] != union:
                            known[value] = set(union)
                            changed.append(value)
        return changed

    def is_allowed(self, op: Operation, option: Option) -> bool:
        """Every dim that the option cuts is one that the axis may cut, those of constants left out: they are of nothing."""
        cuts = [
            (value, state.dim)
            for value, state in (
                *zip(values_read(op), option.operands, strict=True),
                *zip(op.results, option.results, strict=True),
            )
            if isinstance(state, Sharded | Windowed) and not is_stated(value)
        ]
        return all(self._allowed(value, dim) for value, dim in cuts)


class Reach:
    """Which dims are linked to the batch, which to a dim of a parameter, and which of these to one of a weight: what is made of
    parameters alone, and is summed over (the matrix of a contraction, the table of a lookup). Tables that are added or multiplied
    (positions, the scale of a norm) have dims that are otherwise of activations, such as the sequence."""

    def __init__(self, module: ModuleOp, entry: FuncOp, batch: Mapping[int, int]):
        self._module, self._entry = module, entry
        self._links = link_dims(module, entry)
        arguments = entry.body.block.args
        roles = [text(a, "dist.role", "input") for a in argument_attributes(entry)]
        self._model = {
            self._links.find((v, d))
            for v, role in zip(arguments, roles, strict=True)
            if role in ("parameter", "state")
            for d in range(_rank(v))
        }
        self._data = {self._links.find((arguments[i], d)) for i, d in batch.items()}

    @cached_property
    def _weights(self) -> set[int]:
        """Dims of weights; of all parameters if none is summed over."""
        table = functions(self._module)
        made, found = made_of_model(self._entry, table), set[int]()
        for function in calls_first(self._module, self._entry.sym_name.data):
            for op in function.body.block.ops:
                if isinstance(op, AnyCall | ReturnOp) or all([v in made or is_stated(v) for v in op.operands]):
                    continue
                if (rule := rule_of(op)) is not None:
                    for i in {i for i, _ in _summed(op, rule) if op.operands[i] in made}:
                        found.update([self._links.find((op.operands[i], d)) for d in range(_rank(op.operands[i]))])
        return found & self._model or self._model

    def is_weight(self, value: SSAValue, dim: int) -> bool:
        """Linked to a weight and not to the batch."""
        return (root := self._links.find((value, dim))) in self._weights and root not in self._data

    def is_batch(self, value: SSAValue, dim: int) -> bool:
        return self._links.find((value, dim)) in self._data

    def is_sequence(self, value: SSAValue, dim: int) -> bool:
        """Linked to neither."""
        return not self.is_batch(value, dim) and not self.is_weight(value, dim)

    def is_model(self, value: SSAValue, dim: int) -> bool:
        """Linked to a parameter and not to the batch."""
        return (root := self._links.find((value, dim))) in self._model and root not in self._data


def _scaled(cuts: Iterable[Pieces], op: Operation) -> set[Pieces]:
    """Piece lists at every extent that a dim of this op has: a reshape's inner dims scale the pieces of a factor."""
    extents = {n for v in (*op.operands, *op.results) for n in shape_of(v)}
    found: set[Pieces] = set()
    for cut in cuts:
        total = extent_of(cut)
        for extent in extents:
            if all(p * extent % total == 0 for p in different(cut)):
                found.add(mapped(cut, lambda piece, extent=extent, total=total: piece * extent // total))
    return found


def _is_even(option: Option, shards: int) -> bool:
    states = (*option.operands, *option.results)
    return all(state.is_even(shards) for state in states if isinstance(state, Sharded))


def _outermost(op: Operation, found: list[Option], shards: int) -> list[Option]:
    """Of the factors that lie inside each other in a dim, the outermost that can be cut evenly: the others would multiply the
    pieces that are followed (a head's dim inside the heads)."""
    rule = rule_of(op)
    cut = {o.choice.factor for o in found if isinstance(o.choice, UseFactor) and _is_even(o, shards)}
    return [o for o in found if not (rule and isinstance(o.choice, UseFactor) and cut & rule.outside(o.choice.factor))]


def model_values(functions_: Iterable[FuncOp], entry: FuncOp, table: Mapping[str, FuncOp]) -> set[SSAValue]:
    """Parameters and state, as arguments of every function that they reach: values that are never gathered."""
    found = set[SSAValue](model_arguments(entry))
    for function in reversed(list(functions_)):  # callers before callees
        for op in function.body.block.ops:
            if isinstance(op, AnyCall):
                callee = table[op.callee.string_value()].body.block
                found |= {b for a, b in zip(op.operands, callee.args, strict=False) if a in found}
    return found


def made_of_model(
    entry: FuncOp, table: Mapping[str, FuncOp], roles: Collection[str] = ("parameter", "state", "buffer")
) -> set[SSAValue]:
    """Parameters and state, and what is made of these alone, in every function that they reach from any caller."""
    made, looked_at = set[SSAValue](model_arguments(entry, roles)), dict[FuncOp, Sequence[SSAValue]]()

    def look(function: FuncOp) -> None:
        block = function.body.block
        given = [v for v in block.args if v in made]
        if looked_at.get(function) == given:
            return
        looked_at[function] = given
        for op in block.ops:
            if isinstance(op, AnyCall):
                callee = table[op.callee.string_value()]
                inside = callee.body.block
                made.update([b for a, b in zip(op.operands, inside.args, strict=False) if a in made])
                look(callee)
                returned = inside.last_op.operands if inside.last_op else ()
                made.update([a for a, b in zip(op.results, returned, strict=False) if b in made])
            elif op.operands and all([v in made or is_stated(v) for v in op.operands]):
                made.update(op.results)

    look(entry)
    return made


def model_arguments(entry: FuncOp, roles: Collection[str] = ("parameter", "state", "buffer")) -> list[BlockArgument]:
    """The entry's arguments that are parameters and state."""
    own = [text(a, "dist.role", "input") for a in argument_attributes(entry)]
    return [v for v, role in zip(entry.body.block.args, own, strict=True) if role in roles]
