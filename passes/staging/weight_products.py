"""Types of products with weights. In goes a module with rules; out comes the module with the computed type on each
contraction that multiplies by weights or makes their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import prod

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, StringAttr, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Reduce
from distir.interpreters.costs import MATMUL_TYPE, ROUNDED
from distir.interpreters.model_names import Renamings, inside, model_name
from distir.interpreters.walk import values_read
from distir.interpreters.work import Kind, is_view, work_of
from distir.passes.distribution.options import rule_of
from distir.passes.structure import (
    AnyCall,
    argument_attributes,
    calls_first,
    cloned,
    functions,
    result_attributes,
    shape_of,
    text,
    unique_symbol,
)


class Origin(IntEnum):
    """What a value is computed from: neither inputs nor parameters, parameters but no inputs, inputs."""

    CONSTANT = 0
    WEIGHT = 1
    INPUT = 2


KEPT = ("parameter", "state")
"""Roles of what is computed anew in each step."""
ORIGINS = {"input": Origin.INPUT, "label": Origin.INPUT, "seed": Origin.INPUT, **dict.fromkeys(KEPT, Origin.WEIGHT)}


def mark_products(module: ModuleOp, entry: FuncOp, kind: str, keep: Sequence[str]) -> list[str]:
    """Has each product of weights say in which type it is computed, but for those of modules with one of these names. A gradient is a contraction whose result
    an updated parameter, or its state, is computed from element by element. Returns the names that no product has."""
    products = {**dict.fromkeys(_gradients(module, entry)), **_by_weights(module, entry)}
    marking = _Marking(module, products, StringAttr(kind), keep)
    marking.function(entry.sym_name.data, ())
    return [name for name in keep if name not in marking.met]


class _Marking:
    """Marks products in functions, of which calls that differ in what is kept have one each."""

    def __init__(
        self, module: ModuleOp, products: Mapping[Operation, int | None], kind: StringAttr, keep: Sequence[str]
    ):
        self._module, self._kind, self._keep = module, kind, keep
        self._table = functions(module)
        operations = {name: list(f.body.block.ops) for name, f in self._table.items() if f.body.blocks}
        self._products = {name: [i for i, op in enumerate(ops) if op in products] for name, ops in operations.items()}
        self._rounded = {
            (name, i): products[operations[name][i]] for name, found in self._products.items() for i in found
        }
        self._calls = {
            name: [(i, op.callee.string_value()) for i, op in enumerate(ops) if isinstance(op, AnyCall)]
            for name, ops in operations.items()
        }
        self._made = dict[tuple[object, ...], str]()
        self._used = set[str]()
        self.met = set[str]()
        """The names to keep that some product has."""

    def function(self, name: str, around: Renamings) -> str:
        """The function that a call runs, inside these calls."""
        operations = list(self._table[name].body.block.ops)
        called = [self.function(callee, inside(operations[i], around)) for i, callee in self._calls[name]]
        kept = [self._is_kept(model_name(operations[i], around)) for i in self._products[name]]
        key = (name, *called, *kept)
        if key not in self._made:
            function = self._table[name]
            if name in self._used:
                function = cloned(function)
                function.sym_name = StringAttr(unique_symbol(self._module, name))
                self._module.body.block.insert_op_after(function, self._table[name])
            self._used.add(name)
            self._made[key] = function.sym_name.data
            own = list(function.body.block.ops)
            for (i, _), callee in zip(self._calls[name], called, strict=True):
                own[i].properties["callee"] = SymbolRefAttr(callee)
            rounded = set[SSAValue]()
            for i, is_kept in zip(self._products[name], kept, strict=True):
                for said in (MATMUL_TYPE, ROUNDED):
                    own[i].attributes.pop(said, None)
                if is_kept:
                    continue
                own[i].attributes[MATMUL_TYPE] = self._kind
                operand = self._rounded[name, i]
                if operand is not None and (source := _viewed(own[i].operands[operand])) not in rounded:
                    rounded.add(source)
                    own[i].attributes[ROUNDED] = DenseArrayBase.from_list(i64, [operand])
        return self._made[key]

    def _is_kept(self, name: str) -> bool:
        found = [each for each in self._keep if f".{each}." in f".{name}."]
        self.met.update(found)
        return bool(found)


def _viewed(value: SSAValue) -> SSAValue:
    """What a value is a view of, or itself."""
    while isinstance(value, OpResult) and is_view(value.op):
        value = value.op.operands[0]
    return value


def _contracted(op: Operation) -> list[SSAValue]:
    """The operands of which a contraction sums products; none of another operation."""
    rule = rule_of(op)
    if rule is None or isinstance(op, AnyCall | ReturnOp) or work_of(op).kind is not Kind.MATMUL:
        return []
    summed = {f for f, combines in rule.combines.items() if Reduce(Reduction.SUM) in combines}
    return [
        v
        for v, dims in zip(values_read(op), rule.inputs, strict=False)
        if summed & {f for d in dims for f in d.factors}
    ]


def _by_weights(module: ModuleOp, entry: FuncOp) -> dict[Operation, int]:
    """The contractions of inputs with weights, and which operand is of inputs: it is rounded there, and for gradients too."""
    table, found = functions(module), dict[Operation, int]()
    known = dict[tuple[str, tuple[Origin, ...]], list[Origin]]()

    def results(function: FuncOp, given: Sequence[Origin]) -> list[Origin]:
        key = (function.sym_name.data, tuple(given))
        if key not in known:
            block = function.body.block
            origins = dict[SSAValue, Origin](zip(block.args, given, strict=True))
            for op in block.ops:
                read = [origins[v] for v in values_read(op)]
                if isinstance(op, AnyCall):
                    made = results(table[op.callee.string_value()], read)
                else:
                    made = [max(read, default=Origin.CONSTANT)] * len(op.results)
                    factors = {origins[v]: v for v in _contracted(op)}
                    if {Origin.WEIGHT, Origin.INPUT} <= factors.keys():
                        found[op] = list(op.operands).index(factors[Origin.INPUT])
                origins.update(zip(op.results, made, strict=True))
                if isinstance(op, ReturnOp):
                    known[key] = read
        return known[key]

    roles = (text(attributes, "dist.role", "input") for attributes in argument_attributes(entry))
    results(entry, [ORIGINS.get(role, Origin.CONSTANT) for role in roles])
    return found


def _gradients(module: ModuleOp, entry: FuncOp) -> set[Operation]:
    """The contractions that updates are computed from, element by element."""
    table, calls = functions(module), dict[str, list[Operation]]()
    for function in calls_first(module, entry.sym_name.data):
        for op in function.body.block.ops:
            if isinstance(op, AnyCall):
                calls.setdefault(op.callee.string_value(), []).append(op)

    def sources(value: SSAValue) -> Iterable[SSAValue]:
        """What a value has its elements from."""
        if isinstance(value, BlockArgument):
            function = value.block.parent_op()
            assert isinstance(function, FuncOp)
            return [call.operands[value.index] for call in calls.get(function.sym_name.data, ())]
        assert isinstance(value, OpResult)
        op = value.op
        if isinstance(op, AnyCall):
            return [_returned(table[op.callee.string_value()])[value.index]]
        return [v for v in op.operands if prod(shape_of(v)) == prod(shape_of(value))]

    roles = (text(attributes, "dist.role", "output") for attributes in result_attributes(entry))
    todo = [v for v, role in zip(_returned(entry), roles, strict=True) if role in KEPT]
    found, seen = set[Operation](), set(todo)
    while todo:
        value = todo.pop()
        if isinstance(value, OpResult) and _contracted(value.op):
            found.add(value.op)
            continue
        new = [v for v in sources(value) if v not in seen]
        seen.update(new)
        todo += new
    return found


def _returned(function: FuncOp) -> Sequence[SSAValue]:
    last = function.body.block.last_op
    return () if last is None else last.operands
