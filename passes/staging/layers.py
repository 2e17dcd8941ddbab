"""Parameters of all layers in one array, as `jax.lax.scan` takes them, in one part per layer. In go @main and what its
scans take and give row by row; out comes @main with one argument and one result per layer.

So each layer's weights, optimizer state and update can be where the layer is. What is done to whole arrays (an
optimizer's arithmetic) is done to each part, as the discovered rules of the operations allow; what parts add up to (the
norm of a gradient) is added up. Arrays of which something else is needed stay whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from math import prod
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.jax.library import library
from distir.dialects.jax.operations import Constant
from distir.dialects.onnx.tensors import TensorAttr
from distir.dialects.reductions import Reduction
from distir.frontends.by_layer import Layers, join_layers, part_names, split_layers
from distir.frontends.eager import Steps, change_eager
from distir.frontends.jax.rows import Rows, rows_of
from distir.interpreters.entry import entry_function
from distir.interpreters.walk import values_read
from distir.interpreters.weights import attach, weights_of
from distir.passes.structure import argument_attributes, copied, result_attributes, shape_of, share_name_hint, text

if TYPE_CHECKING:
    from distir.dialects.sharding import Rule
    from distir.passes.distribution.options import Option

SPLIT_ROLES = ("parameter", "state", "buffer")

COMBINED = {Reduction.SUM: "add", Reduction.PROD: "multiply", Reduction.MAX: "maximum", Reduction.MIN: "minimum"}
"""By reduction, the function of jax.numpy that joins two addends."""


def split_layers_of(module: ModuleOp) -> None:
    """Splits arrays that have all layers, of a program that was imported from JAX, and their values; nothing for others."""
    if (rows := rows_of(module)) is None:
        return
    layers = split_arguments(entry_function(module), rows)
    rows.erase_unused()
    attach(module, split_layers(weights_of(module), layers))

    def of_parts(steps: Steps) -> Steps:
        return lambda values, batches: [split_layers(r, layers) for r in steps(join_layers(values, layers), batches)]

    change_eager(module, of_parts)


def split_arguments(main: FuncOp, rows: Rows) -> dict[str, tuple[int, int]]:
    """Replaces parameters, state and buffers of which a dim tells layers apart, and the results that update them, by the parts of each
    layer (`by_layer`). Returns that dim and the number of layers of each that was replaced, by name."""
    splitting, layer_of = _Splitting(main, rows), dict[Operation, tuple[int, int]]()
    found: dict[str, tuple[int, int]] = {}
    for value, scan in splitting.seeds.items():
        if splitting.is_there(value) and (pieces := splitting.pieces(value)):
            writing = _Writing(main, rows, pieces)
            found |= writing.run()
            layer_of |= {op: (scan, number) for op, number in writing.number_of.items()}
    if found:
        _order_by_layer(main.body.block, layer_of)
    return found


def _order_by_layer(block: Block, layer_of: Mapping[Operation, tuple[int, int]]) -> None:
    """Puts operations of one layer one after the other, as far as what they take of others allows: each layer looks like the next."""
    *ops, last = block.ops
    rounds: dict[Operation, int] = {}
    for op in ops:
        makers = [value.op for value in values_read(op) if isinstance(value, OpResult) and value.op in rounds]
        rounds[op] = max((rounds[m] + (m in layer_of and op not in layer_of) for m in makers), default=0)
    for op in sorted(ops, key=lambda op: (rounds[op], layer_of.get(op, (-1, 0)))):
        op.detach()
        block.insert_op_before(op, last)


@dataclass
class _Pieces:
    """Values that are cut together into a part per layer, by dim, and the operations that run once per layer."""

    layers: int
    dims: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    ops: dict[Operation, tuple[Rule, Option]] = field(default_factory=dict[Operation, "tuple[Rule, Option]"])
    whole: set[SSAValue] = field(default_factory=set[SSAValue])
    """Those that something takes as they are."""
    held: set[SSAValue] = field(default_factory=set[SSAValue])
    """Those that are made of arguments that are split: there is no whole one."""


class _Splitting:
    """The arguments of one function."""

    def __init__(self, main: FuncOp, rows: Rows) -> None:
        self._main, self._rows, self._block = main, rows, main.body.block
        self._takers = {op for taken in rows.taken.values() for _, _, ops in taken for op in ops}
        self.seeds = self._seeds()

    def _seeds(self) -> dict[SSAValue, int]:
        """Arrays of which a scan takes each row, where a step has more parameters of its own than it shares with other steps (a scan over
        layers, not over time), and the number of that scan."""
        of_parameters, found = self._of_parameters(), dict[SSAValue, int]()

        def size(values: Sequence[SSAValue]) -> int:
            return sum(prod(shape_of(value)) for value in {*values} & of_parameters)

        for number, (shared, by_row) in enumerate(self._rows.scans):
            if size(by_row) >= size(shared):
                for value in by_row:
                    if value in of_parameters and shape_of(value)[0] > 1:
                        found.setdefault(value, number)
        return found

    def _of_parameters(self) -> set[SSAValue]:
        """What is made of arguments that may be split, and of nothing else but constants."""
        found, stated = set[SSAValue](self._arguments().values()), set[SSAValue]()
        for op in self._block.ops:
            if all(value in stated for value in op.operands):
                stated.update(op.results)
            elif all(value in found or value in stated for value in op.operands):
                found.update(op.results)
        return found

    def _arguments(self) -> dict[str, BlockArgument]:
        """Those that may be split, by name."""
        return {
            text(attributes, "dist.name", ""): argument
            for argument, attributes in zip(self._block.args, argument_attributes(self._main), strict=True)
            if text(attributes, "dist.role", "") in SPLIT_ROLES
        }

    def _updates(self) -> list[str | None]:
        """Of each result, the name of the argument that it updates."""
        attributes = result_attributes(self._main)
        return [text(a, "dist.name", "") if text(a, "dist.role", "") in SPLIT_ROLES else None for a in attributes]

    def is_there(self, value: SSAValue) -> bool:
        """Whether nothing has replaced it."""
        return value.owner is self._block or (isinstance(value, OpResult) and value.op.parent is self._block)

    @cached_property
    def _rules(self) -> dict[Operation, Rule]:
        """Of the operations that have a dim of as many elements as there are layers."""
        from distir.passes.shardcombine.cache import RuleCache
        from distir.passes.shardcombine.discovery import Discovery
        from distir.passes.shardcombine.domains import InterpreterDomains
        from distir.passes.shardcombine_annotate import is_operator

        counts = {shape_of(value)[0] for value in self.seeds}

        def has_layers(op: Operation) -> bool:
            return any(not counts.isdisjoint(shape_of(value)) for value in (*op.operands, *op.results))

        ops = [op for op in self._block.ops if op not in self._takers and is_operator(op) and has_layers(op)]
        discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
        found = dict(zip(ops, discovery.rules(ops), strict=True))
        discovery.cache.save()
        return found

    def pieces(self, seed: SSAValue) -> _Pieces | None:
        """All that is cut together with this array along dim 0; None where something needs more than a layer of what is made of an
        argument."""
        found = _Pieces(shape_of(seed)[0])
        arguments, updates = self._arguments(), self._updates()
        names = dict[SSAValue, str](zip(arguments.values(), arguments, strict=True))
        todo, done = [(seed, 0)], set[SSAValue]()

        while todo:
            value, dim = todo.pop()
            if found.dims.setdefault(value, dim) != dim:
                return None
            if value in done:
                continue
            done.add(value)
            if value in names:
                if shape_of(value)[dim] != found.layers:
                    return None
                todo += [(v, dim) for v, name in zip(self._returned, updates, strict=True) if name == names[value]]
            elif isinstance(value, OpResult) and not self._is_stacked(value, found):
                self._cut(found, value.op, dim, todo, result=value.index)
            for use in value.uses:
                user, index = use.operation, use.index
                if isinstance(user, ReturnOp) and (name := updates[index]) is not None:
                    todo.append((arguments[name], dim))
                elif not (dim == 0 and user in self._takers) and not self._cut(found, user, dim, todo, operand=index):
                    found.whole.add(value)
        self._hold(found, {*names})
        return None if found.held & found.whole else found

    @property
    def _returned(self) -> Sequence[SSAValue]:
        return self._block.last_op.operands if self._block.last_op is not None else ()

    def _is_stacked(self, value: SSAValue, pieces: _Pieces) -> bool:
        return pieces.dims[value] == 0 and len(self._rows.rows_of(value)) == pieces.layers

    def _cut(
        self,
        pieces: _Pieces,
        op: Operation,
        dim: int,
        todo: list[tuple[SSAValue, int]],
        operand: int | None = None,
        result: int = 0,
    ) -> bool:
        """Whether the operation can run once per layer, this operand (or this result) being cut along the dim; notes it, and what else is
        cut with it."""
        from distir.dialects.sharding import Gather, Partial, Replicated, Sharded
        from distir.passes.distribution.options import factor_option

        if (rule := self._rules.get(op)) is None:
            return False
        if operand is not None:
            factors = [rule.inputs[operand][dim].factor] if operand < len(rule.inputs) else []
        else:
            ends = {factor: combines[result] for factor, combines in rule.combines.items()}
            factors = [factor for factor, end in ends.items() if isinstance(end, Gather) and end.dim == dim]
        for factor in factors:
            if factor is None or factor in rule.offsets or factor in rule.windowed:
                continue
            option = factor_option(op, rule, factor, pieces.layers, None)
            if option is None or option.means:
                continue
            asked = option.results[result] if operand is None else option.operands[operand]
            states = [*zip(op.operands, option.operands, strict=False), *zip(op.results, option.results, strict=True)]
            if (
                not isinstance(asked, Sharded)
                or asked.dim != dim
                or any(isinstance(state, Sharded) and len(state.pieces) > 1 for _, state in states)
                or not all(isinstance(state, Sharded | Replicated) for state in option.operands)
                or any(isinstance(state, Partial) and state.reduction not in COMBINED for state in option.results)
            ):
                continue
            if op in pieces.ops:
                return pieces.ops[op][1] == option
            pieces.ops[op] = rule, option
            todo += [(value, state.dim) for value, state in states if isinstance(state, Sharded)]
            return True
        return False

    def _hold(self, pieces: _Pieces, arguments: set[SSAValue]) -> None:
        """Finds what is made of arguments, and what of that an operation takes as it is."""
        from distir.dialects.sharding import Sharded

        pieces.held.update(arguments & pieces.dims.keys())
        for op in self._block.ops:
            if op not in pieces.ops or pieces.held.isdisjoint(op.operands):
                continue
            _, option = pieces.ops[op]
            for value, state in zip(op.operands, option.operands, strict=False):
                if not isinstance(state, Sharded):
                    pieces.whole.add(value)
            pieces.held.update(
                r for r, state in zip(op.results, option.results, strict=True) if isinstance(state, Sharded)
            )


class _Writing:
    """Writes the pieces of one function."""

    def __init__(self, main: FuncOp, rows: Rows, pieces: _Pieces) -> None:
        self._main, self._rows, self._build, self._pieces = main, rows, rows.build, pieces
        self._block, self._layers = main.body.block, pieces.layers
        self._parts: dict[SSAValue, dict[int, SSAValue]] = {}
        self.number_of: dict[Operation, int] = {}
        """Of operations of one layer, which it is."""

    def run(self) -> dict[str, tuple[int, int]]:
        """Returns the dim and the number of layers of each argument that was split, by name."""
        split = self._split_arguments()
        for op in [*self._block.ops]:
            if op in self._pieces.ops:
                self._repeat(op)
        for value in self._pieces.held:
            for number, row, ops in self._rows.taken.get(value, ()):
                self._take(value, number, row, ops)
        self._split_results(split)
        self._erase_unused()
        arguments = [argument.type for argument in self._block.args]
        returned = self._block.last_op.operands if self._block.last_op is not None else ()
        self._main.properties["function_type"] = FunctionType.from_lists(arguments, [value.type for value in returned])
        return split

    def _split_arguments(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        attributes: list[Mapping[str, Attribute]] = []
        for argument, given in zip([*self._block.args], argument_attributes(self._main), strict=True):
            if argument not in self._pieces.held:
                attributes.append(given)
                continue
            name = text(given, "dist.name", "")
            found[name] = self._pieces.dims[argument], self._layers
            attributes += _of_parts(given, name, *found[name])
            for number in range(self._layers):
                part = self._block.insert_arg(self._part_type(argument), argument.index)
                self._parts.setdefault(argument, {})[number] = part
        self._main.arg_attrs = ArrayAttr([DictionaryAttr(dict(each)) for each in attributes])
        return found

    def _part_type(self, value: SSAValue) -> TensorType[Any]:
        """The type of a layer's part."""
        tensor, dim = cast("TensorType[Any]", value.type), self._pieces.dims[value]
        shape = tensor.get_shape()
        return TensorType(tensor.element_type, [*shape[:dim], shape[dim] // self._layers, *shape[dim + 1 :]])

    def _part(self, value: SSAValue, number: int, before: Operation) -> SSAValue:
        """A layer's part of a value that is cut."""
        parts = self._parts.setdefault(value, {})
        if number not in parts:
            part = parts[number] = self._made_part(value, number, before)
            self.number_of[cast(OpResult, part).op] = number
            share_name_hint([parts[number]], value.name_hint)
        return parts[number]

    def _made_part(self, value: SSAValue, number: int, before: Operation) -> SSAValue:
        dim, lax = self._pieces.dims[value], library("jax.lax")
        extent = shape_of(value)[dim] // self._layers
        start, stop = number * extent, (number + 1) * extent
        rows = self._rows.rows_of(value)
        if dim == 0 and len(rows) == self._layers:
            return self._build(lambda row: lax.reshape(row, (1, *row.shape)), [rows[number]], before)
        if isinstance(value.owner, Constant):
            whole = value.owner.value.to_numpy()
            constant = Constant(TensorAttr.from_numpy(whole[(*[slice(None)] * dim, slice(start, stop))]))
            self._block.insert_op_before(constant, before)
            return constant.result
        return self._build(lambda whole: lax.slice_in_dim(whole, start, stop, axis=dim), [value], before)

    def _repeat(self, op: Operation) -> None:
        """An operation becomes one per layer; what is no part of a layer is combined."""
        from distir.dialects.sharding import Partial, Sharded, UseFactor
        from distir.passes.distribution.sizes import changes_of, local_properties

        rule, option = self._pieces.ops[op]
        assert isinstance(option.choice, UseFactor)
        properties = local_properties(op, changes_of(rule, {option.choice.factor: self._layers}))
        copies: list[Operation] = []
        for number in range(self._layers):
            operands = [
                self._part(value, number, op) if isinstance(state, Sharded) else value
                for value, state in zip(op.operands, option.operands, strict=False)
            ]
            copy = type(op).create(
                operands=operands,
                result_types=[
                    self._part_type(r) if isinstance(state, Sharded) else r.type
                    for r, state in zip(op.results, option.results, strict=True)
                ],
                properties=properties,
                attributes=dict(op.attributes),
                regions=[copied(region, {}) for region in op.regions],
                location=op.location,
            )
            self._block.insert_op_before(copy, op)
            self.number_of[copy] = number
            copies.append(copy)
        for result, state in zip(op.results, option.results, strict=True):
            parts = [copy.results[result.index] for copy in copies]
            share_name_hint(parts, result.name_hint)
            if isinstance(state, Sharded):
                self._parts[result] = dict(enumerate(parts))
                continue
            whole = parts[0]
            if isinstance(state, Partial):
                combine = getattr(library("jax.numpy"), COMBINED[state.reduction])
                whole = reduce(lambda a, b: self._build(combine, [a, b], op), parts)
            result.replace_all_uses_with(whole)

    def _take(self, value: SSAValue, number: int, row: SSAValue, ops: Sequence[Operation]) -> None:
        """A row is taken from its layer's part."""
        part = self._part(value, number, ops[0])
        row.replace_all_uses_with(self._build(lambda x: library("jax.lax").squeeze(x, (0,)), [part], ops[0]))

    def _split_results(self, split: Layers) -> None:
        last = self._block.last_op
        assert last is not None
        returned: list[SSAValue] = []
        attributes: list[Mapping[str, Attribute]] = []
        for value, given in zip(last.operands, result_attributes(self._main), strict=True):
            name = text(given, "dist.name", "")
            if name in split:
                returned += [self._part(value, number, last) for number in range(self._layers)]
                attributes += _of_parts(given, name, *split[name])
            else:
                returned.append(value)
                attributes.append(given)
        last.operands = returned
        self._main.res_attrs = ArrayAttr([DictionaryAttr(dict(each)) for each in attributes])

    def _erase_unused(self) -> None:
        self._rows.erase_unused()
        for op in [*self._block.ops][::-1]:
            if op in self._pieces.ops and not any(result.uses for result in op.results):
                self._block.erase_op(op)
        self._rows.erase_unused()
        for argument in self._pieces.held:
            if isinstance(argument, BlockArgument):
                self._block.erase_arg(argument)


def _of_parts(attributes: Mapping[str, Attribute], name: str, dim: int, count: int) -> list[Mapping[str, Attribute]]:
    return [{**attributes, "dist.name": StringAttr(part)} for part in part_names(name, dim, count)]
