"""Lowering of chosen options to devices. In go functions with an option per operation and axis; out come templates
over the devices of the mesh.

Rewrite patterns, one per kind of operation. An op becomes one op per device on local shapes, after the collectives
that bring its operands to the states it needs. A call becomes a `dist.call` over all devices; the return lists every
device. Arguments and results are listed value by value, and for each value device by device (row-major over the
mesh, last axis fastest)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import cast

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)

from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist import MicrobatchesOp, ScaleOp
from distir.dialects.dist.positions import PositionOp
from distir.dialects.errors import DistirError
from distir.dialects.sharding import Sharded, State, UseFactor
from distir.interpreters.entry import Port
from distir.interpreters.walk import values_read
from distir.interpreters.work import is_first_addend
from distir.passes.distribution.margins import margins_of
from distir.passes.distribution.mesh import AxisStates, Mesh, as_addends
from distir.passes.distribution.options import ADDENDS, RULE, Option, rule_of
from distir.passes.distribution.positions import Positions, positions_of, starts_of
from distir.passes.distribution.shards import Shards, placed_copy, state_on
from distir.passes.distribution.sizes import changes_of, local_constants, local_properties
from distir.passes.structure import AnyCall, give_body, is_constant

STRATEGY, SHARDING = "dist.strategy", "dist.sharding"


class Lowering:
    """Lowers functions, callees first. `chosen` gives each op's option per axis, `arguments` each argument's states, and
    `returned` those of a function's results (otherwise they are returned as they were produced; by the entry, if one is
    named, so that all devices' addends make the value)."""

    def __init__(
        self,
        mesh: Mesh,
        chosen: Mapping[Operation, Sequence[Option]],
        arguments: Mapping[BlockArgument, AxisStates],
        returned: Mapping[str, Sequence[AxisStates]] | None = None,
        entry: str | None = None,
        shards: Callable[[Mesh], Shards] = Shards,
    ):
        self.mesh, self.chosen, self.arguments, self.shards = mesh, chosen, arguments, shards
        self.returned, self.entry = returned or {}, entry
        self.results: dict[str, list[AxisStates]] = {}
        self.argument_states: dict[str, list[AxisStates]] = {}
        self._bodies: dict[FuncOp, Block] = {}
        """Of the functions that were lowered, as they were before."""

    def lower(self, function: FuncOp) -> None:
        """Makes a function a placed template, in place; callees must have been lowered before."""
        block = function.body.block
        sources, replaced = list(block.args), set(block.ops)
        try:
            lowered = self._lowered(function, sources)
        except DistirError:
            for op in reversed(list(block.ops)):
                if op not in replaced:
                    block.erase_op(op)
            raise
        for op in list(block.ops):
            if op not in replaced:  # these go with the old body
                op.detach()
                lowered.add_op(op)
        self._bodies[function] = block
        give_body(function, lowered)
        self.argument_states[function.sym_name.data] = [self.arguments[a] for a in sources]

    def restore(self) -> None:
        """Gives the functions that were lowered their bodies back."""
        for function, block in self._bodies.items():
            give_body(function, block)

    def _lowered(self, function: FuncOp, sources: Sequence[BlockArgument]) -> Block:
        """A block for the lowered operations, which are written among those of the function."""
        shards = self.shards(self.mesh)
        count = len(shards.devices)
        states = [self.arguments[argument] for argument in sources]
        lowered = Block(
            arg_types=[
                type_
                for argument, state in zip(sources, states, strict=True)
                for type_ in shards.placed_types(argument.type, state)
            ]
        )
        for i, (argument, state) in enumerate(zip(sources, states, strict=True)):
            shards.define(argument, state, list(lowered.args[i * count : (i + 1) * count]))
        patterns: list[RewritePattern] = [
            OperationRunsOnShards(shards, self.chosen),
            CallRunsOnEveryDevice(shards, self),
            LoopRunsOnEveryDevice(shards, self),
            ReturnListsEveryDevice(shards, self, function.sym_name.data),
        ]
        PatternRewriteWalker(
            GreedyRewritePatternApplier(patterns, dce_enabled=False), apply_recursively=False
        ).rewrite_region(function.body)
        return lowered


@dataclass
class OperationRunsOnShards(RewritePattern):
    """An op becomes one op per device, on the shards that its options need; means over shards become addends."""

    shards: Shards
    chosen: Mapping[Operation, Sequence[Option]]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if op not in self.chosen or is_constant(op) or isinstance(op, (AnyCall, ReturnOp)):
            return
        options, mesh = self.chosen[op], self.shards.mesh
        sizes, read = LocalSizes(op, options, mesh), values_read(op)
        attributes = {k: v for k, v in op.attributes.items() if k not in (ADDENDS, RULE, STRATEGY)}
        operands = [
            [] if i in sizes.operands else self.shards.get(v, tuple(o.operands[i] for o in options), rewriter.insert)
            for i, v in enumerate(read)
        ]
        results = [tuple(option.results[i] for option in options) for i in range(len(op.results))]
        if is_first_addend(op):
            self.shards.define(op.results[0], results[0], operands[0])
            return
        placed = [self.shards.placed_types(r.type, states) for r, states in zip(op.results, results, strict=True)]
        positions = positions_of(op, options, mesh)
        copies: list[Operation] = []
        before: list[list[SSAValue]] = []
        self.shards.check(op, lambda: positions is None and sizes.are_uniform)
        for number, device in enumerate(self.shards.devices):
            properties, rewritten = sizes.on(device)
            own = [
                self._constant(rewritten[i], i, sizes, device, rewriter) if i in rewritten else values[number]
                for i, values in enumerate(operands)
            ]
            before.append(own)
            if positions is not None:
                own = positions.before(own, positions.range(device), self._varying(positions, rewriter))
            types = [of_devices[number] for of_devices in placed]
            for i in range(len(types)):
                for margin in margins_of(options, mesh, device, i):
                    types[i] = margin.widened(types[i])
            captured = dict(zip(read[len(op.operands) :], own[len(op.operands) :], strict=True))
            regions = [placed_copy(region, captured, self.shards.on(device)) for region in op.regions]
            copy = type(op).create(
                operands=own[: len(op.operands)],
                result_types=types,
                properties=properties,
                attributes=attributes,
                regions=regions,
                location=op.location,
            )
            copies.append(rewriter.insert(copy))
            if not sizes.are_uniform:
                self.shards.vary(copy, lambda device: sizes.on(device)[0])
        for i, (result, states) in enumerate(zip(op.results, results, strict=True)):
            values: list[SSAValue] = [copy.results[i] for copy in copies]
            for number, device in enumerate(self.shards.devices):
                for margin in margins_of(options, mesh, device, i):
                    values[number] = margin.trimmed(values[number], rewriter.insert)
            if positions is not None:
                values = [
                    positions.after(v, own, positions.range(device), self._varying(positions, rewriter))
                    for device, v, own in zip(self.shards.devices, values, before, strict=True)
                ]
            if any(i in option.means for option in options):
                self.shards.same(partial(fraction_of, options, mesh, mean_of=i), op.name)
                shares = [fraction_of(options, mesh, device, mean_of=i) for device in self.shards.devices]
                values = [
                    rewriter.insert(ScaleOp(v, *by.as_integer_ratio())).output if by != 1 else v
                    for v, by in zip(values, shares, strict=True)
                ]
            self.shards.define(result, states, values)

    def _constant(
        self, constant: Operation, index: int, sizes: LocalSizes, device: int, rewriter: PatternRewriter
    ) -> SSAValue:
        """A constant that takes the place of an operand."""
        value = state_on(constant, self.shards.on(device), rewriter.insert)
        if not sizes.are_uniform:
            self.shards.vary(cast(Operation, value.owner), lambda device: sizes.on(device)[1][index].properties)
        return value

    def _varying(self, positions: Positions, rewriter: PatternRewriter) -> Callable[[Operation], None]:
        """Inserts operations that depend on positions."""

        def insert(op: Operation) -> None:
            rewriter.insert(op)
            if isinstance(op, PositionOp):
                self.shards.vary(op, lambda device: op.at(*positions.range(device)))

        return insert


class LocalSizes:
    """An op's properties and size operands on each device."""

    def __init__(self, op: Operation, options: Sequence[Option], mesh: Mesh):
        self.op, self.options, self.mesh = op, options, mesh
        self.rule = rule_of(op)
        cut = {o.choice.factor for o in options if isinstance(o.choice, UseFactor)}
        sizes = self.rule.sizes.values() if self.rule is not None and cut else ()
        self._scaled = sorted({factor for factors in sizes for factor in factors} & cut)
        """Factors that are cut and that sizes scale with."""
        self._shifts = self.rule is not None and any([factor in self.rule.offsets for factor in cut])
        self._known: dict[object, tuple[dict[str, Attribute], dict[int, Operation]]] = {}
        self.operands = frozenset(self.on(0)[1])
        """Operands that are rewritten."""

    @property
    def are_uniform(self) -> bool:
        """Whether they are the same on all devices."""
        if not self._shifts and (not self._scaled or self._are_even):
            return True
        return all([self.on(device) is self.on(0) for device in range(1, self.mesh.devices)])

    @property
    def _are_even(self) -> bool:
        """Whether every axis cuts in equal shards."""
        axes = zip(self.options, self.mesh.sizes, strict=True)
        cut = [(s, size) for o, size in axes for s in (*o.operands, *o.results) if isinstance(s, Sharded)]
        return all([state.is_even(size) for state, size in cut])

    def on(self, device: int) -> tuple[dict[str, Attribute], dict[int, Operation]]:
        """The properties, and constants that take the place of operands, of one device's copy."""
        factors = {f: 1 / fraction_of(self.options, self.mesh, device, factor=f) for f in self._scaled}
        starts = starts_of(self.op, self.options, self.mesh, device) if self._shifts else {}
        key = *factors.items(), *starts.items()
        if key not in self._known:
            changes = changes_of(self.rule, factors, starts) if key else {}
            self._known[key] = local_properties(self.op, changes), local_constants(self.op, changes)
        return self._known[key]


def fraction_of(
    options: Sequence[Option], mesh: Mesh, device: int, factor: str | None = None, mean_of: int | None = None
) -> Fraction:
    """A device's share of a factor, or of all over which a result is a mean."""
    found = Fraction(1)
    for axis, option in enumerate(options):
        counts = isinstance(option.choice, UseFactor) and option.choice.factor == factor
        if not counts and mean_of not in option.means:
            continue
        states = zip(*(((*o.operands, *o.results)) for o in options), strict=True)
        found *= mesh.fraction(axis, next(s for s in states if isinstance(s[axis], Sharded)), device)
    return found


def canonical_options(options: Sequence[Option], mesh: Mesh) -> list[Option]:
    """The options with the states of every operand and result over all axes in canonical form."""

    def canonical(per_axis: Sequence[Sequence[State]]) -> list[tuple[State, ...]]:
        values = [mesh.canonical(states) for states in zip(*per_axis, strict=True)]
        return [tuple(states[axis] for states in values) for axis in range(len(per_axis))]

    operands, results = canonical([o.operands for o in options]), canonical([o.results for o in options])
    return [replace(o, operands=i, results=r) for o, i, r in zip(options, operands, results, strict=True)]


def cut_factors(options: Sequence[Option], mesh: Mesh) -> dict[str, int]:
    """Into how many parts each factor is cut, over all axes."""
    factors: dict[str, int] = {}
    for option, size in zip(options, mesh.sizes, strict=True):
        if isinstance(option.choice, UseFactor):
            factors[option.choice.factor] = factors.get(option.choice.factor, 1) * size
    return factors


@dataclass
class CallRunsOnEveryDevice(RewritePattern):
    """A call becomes a `dist.call` of the lowered function over all devices."""

    shards: Shards
    lowering: Lowering

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: CallOp, rewriter: PatternRewriter) -> None:
        name = op.callee.string_value()
        needed, given = self.lowering.argument_states[name], self.lowering.results[name]
        operands = [
            value
            for v, states in zip(op.operands, needed, strict=True)
            for value in self.shards.get(v, states, rewriter.insert)
        ]
        types = [
            type_
            for r, states in zip(op.results, given, strict=True)
            for type_ in self.shards.placed_types(r.type, states)
        ]
        call = DistCallOp.create(
            operands=operands,
            result_types=types,
            properties=DistCallOp.stating(name, tuple(self.shards.calls_on)),
            attributes=dict(op.attributes),
            location=op.location,
        )
        rewriter.insert(call)
        n = len(self.shards.devices)
        for i, (result, states) in enumerate(zip(op.results, given, strict=True)):
            self.shards.define(result, states, list(call.results[i * n : (i + 1) * n]))


@dataclass
class LoopRunsOnEveryDevice(RewritePattern):
    """A loop over microbatches becomes one of the lowered function, which is over the same devices."""

    shards: Shards
    lowering: Lowering

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MicrobatchesOp, rewriter: PatternRewriter) -> None:
        name = op.callee.string_value()
        needed = self.lowering.argument_states[name][: len(op.operands)]
        operands = [self.shards.get(v, s, rewriter.insert) for v, s in zip(op.operands, needed, strict=True)]
        same = [value for values in operands[: len(op.same)] for value in values]
        initial = [value for values in operands[len(op.same) :] for value in values]
        loop = MicrobatchesOp(name, same, initial, op.times)
        loop.attributes.update(op.attributes)
        rewriter.insert(loop)
        n = len(self.shards.devices)
        for i, (result, states) in enumerate(zip(op.results, self.lowering.results[name], strict=True)):
            self.shards.define(result, states, list(loop.results[i * n : (i + 1) * n]))


@dataclass
class ReturnListsEveryDevice(RewritePattern):
    """The return gives every result device by device, as it was produced or as was asked for."""

    shards: Shards
    lowering: Lowering
    function: str

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReturnOp, rewriter: PatternRewriter) -> None:
        produced = [self.shards.states_of(v) for v in op.operands]
        if self.function == self.lowering.entry:
            produced = [as_addends(states) for states in produced]
        states = list(self.lowering.returned.get(self.function, produced))
        self.lowering.results[self.function] = states
        values = [
            value for v, s in zip(op.operands, states, strict=True) for value in self.shards.get(v, s, rewriter.insert)
        ]
        rewriter.insert(ReturnOp(*values))


def entry_ports(
    shards: Shards,
    known: Sequence[Port],
    shapes: Sequence[Sequence[int]],
    states: Sequence[AxisStates],
    attributes: Sequence[Mapping[str, Attribute]],
) -> list[dict[str, Attribute]]:
    """Attributes of an entry's arguments or results after lowering, by their global shapes: those that each had, and its
    part, for each device that has one. Several parts have one name, by which they are told to be of one value."""
    ports: list[dict[str, Attribute]] = []
    for port, shape, state, stated in zip(known, shapes, states, attributes, strict=True):
        kept = {k: v for k, v in stated.items() if k != SHARDING}
        parts = shards.parts(tuple(shape), state)
        name = {"dist.name": StringAttr(port.name)} if shards.mesh.devices > 1 else {}
        ports += [{**name, **kept, "dist.part": part} for part in parts]
    return ports
