"""A jaxpr as operations. In goes a closed jaxpr; out comes a module of the `jax` dialect, with calls opened, and
scans unrolled into calls of one function.

Nothing here is written per primitive: the parts of a scan besides its body (taking row i, stacking rows) and
products of groups (`ragged`) are traced from JAX's own functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.jax.library import library
from distir.dialects.jax.operations import PRIMITIVES, REGIONS, Constant, Yield
from distir.dialects.jax.parameters import encode, tensor_type
from distir.dialects.onnx.tensors import TensorAttr
from distir.frontends.jax import ragged
from distir.frontends.jax.keys import COUNTS, SAME, is_key, numbers, numbers_of, on_numbers
from distir.frontends.jax.rows import Rows

Values = Sequence[SSAValue]

CALLS = frozenset(
    "jit pjit closed_call core_call call custom_jvp_call custom_vjp_call custom_lin remat remat2 checkpoint".split()
)
"""Primitives that run a jaxpr once: they are replaced by it."""


class Tracer:
    """Writes one module."""

    def __init__(self) -> None:
        self._functions: list[FuncOp] = []
        self._outlined: dict[str, FuncOp] = {}
        self._numbers = count()
        self.rows = Rows(self.build)

    def module(self, closed: Any) -> ModuleOp:
        """The module of a closed jaxpr, with its function as @main."""
        main = self._function("main", closed)
        return ModuleOp([*self._functions, main])

    def _function(self, name: str, closed: Any) -> FuncOp:
        block = self._block(closed.jaxpr, closed.consts, ReturnOp, f"@{name}")
        types = [value.type for value in block.args], [value.type for value in _results(block)]
        return FuncOp(name, FunctionType.from_lists(*types), Region(block))

    def _block(self, jaxpr: Any, consts: Sequence[Any], terminator: Callable[..., Any], what: str) -> Block:
        block = Block(
            arg_types=[tensor_type(numbers(v.aval), f"argument {i} of {what}") for i, v in enumerate(jaxpr.invars)]
        )
        writer = _Writer(self, block)
        block.add_op(terminator(*writer.run(jaxpr, consts, block.args)))
        return block

    def region(self, jaxpr: Any, what: str) -> Region:
        """A jaxpr, open or closed, as a region."""
        closed = hasattr(jaxpr, "consts") and hasattr(jaxpr, "jaxpr")
        inner = jaxpr.jaxpr if closed else jaxpr
        return Region(self._block(inner, jaxpr.consts if closed else (), Yield, what))

    def build(self, function: Callable[..., Any], operands: Values, before: Operation) -> SSAValue:
        """Writes what a JAX function of one result does with these values before an operation."""
        scratch = Block()
        result = _Writer(self, scratch).traced(function, operands)
        for op in [*scratch.ops]:
            op.detach()
            cast(Block, before.parent).insert_op_before(op, before)
        return result

    def outline(self, closed: Any) -> FuncOp:
        """A function of the module with this body; equal bodies are one function."""
        key = str(closed.jaxpr)
        if closed.consts or key not in self._outlined:
            function = self._function(f"scan_{next(self._numbers)}", closed)
            self._functions.append(function)
            self._outlined[key] = function
        return self._outlined[key]


def _results(block: Block) -> Sequence[SSAValue]:
    return block.last_op.operands if block.last_op is not None else ()


class _Writer:
    """Appends the equations of jaxprs to a block."""

    def __init__(self, tracer: Tracer, block: Block) -> None:
        self._tracer, self._block = tracer, block
        self._constants: dict[TensorAttr, SSAValue] = {}

    def run(self, jaxpr: Any, consts: Sequence[Any], arguments: Values) -> list[SSAValue]:
        """The results of a jaxpr on these values."""
        values: dict[Any, SSAValue] = dict(zip(jaxpr.invars, arguments, strict=True))
        values.update(zip(jaxpr.constvars, (self.constant(np.asarray(numbers_of(c))) for c in consts), strict=True))

        def read(variable: Any) -> SSAValue:
            if hasattr(variable, "val"):  # a literal
                return self.constant(np.asarray(variable.val, variable.aval.dtype))
            return values[variable]

        for equation in jaxpr.eqns:
            results = self._equation(equation, [read(v) for v in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def constant(self, array: np.ndarray[Any, Any]) -> SSAValue:
        value = TensorAttr.from_numpy(array)
        if value not in self._constants:
            op = Constant(value)
            self._block.add_op(op)
            self._constants[value] = op.result
        return self._constants[value]

    def _equation(self, equation: Any, operands: Values) -> Values:
        name = equation.primitive.name
        if equation.effects:
            raise DistirError(f"primitive '{name}' has a side effect ({next(iter(equation.effects))}): remove it")
        if name == "scan":
            return self._scan(equation.params, operands)
        if name in CALLS:
            return self._inline(name, equation.params, operands)
        if name == COUNTS or any(is_key(variable.aval) for variable in (*equation.invars, *equation.outvars)):
            return operands if name in SAME else self._on_keys(name, equation, operands)
        if name == ragged.NAME:
            return [self.traced(partial(ragged.as_product, equation.params), operands)]
        if name not in PRIMITIVES:
            raise DistirError(f"primitive '{name}' is not one of JAX's own: a program cannot say what it computes")
        return self._primitive(name, equation, operands)

    def _inline(self, name: str, params: Any, operands: Values) -> Values:
        inner = [value for value in params.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
        if not inner:
            raise DistirError(f"primitive '{name}' holds no jaxpr to inline")
        jaxpr = getattr(inner[0], "jaxpr", inner[0])
        return self.run(jaxpr, getattr(inner[0], "consts", ()), operands)

    def _on_keys(self, name: str, equation: Any, operands: Values) -> Values:
        """What JAX computes of the numbers of which keys consist."""
        try:
            closed = library().make_jaxpr(on_numbers(equation))(*(numbers(v.aval) for v in equation.invars))
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DistirError(f"primitive '{name}' on keys of random numbers: {reason}") from error
        return self.run(closed.jaxpr, closed.consts, operands)

    def _primitive(self, name: str, equation: Any, operands: Values) -> Values:
        properties: dict[str, Attribute] = {}
        regions: dict[str, Region] = {}
        for key, value in equation.params.items():
            what = f"parameter '{key}' of primitive '{name}'"
            for path, item in _jaxprs(key, value):
                regions[path] = self._tracer.region(item, what)
            if not any(path.split("[")[0] == key for path in regions):
                properties[key] = encode(value, what)
        if regions:
            properties[REGIONS] = ArrayAttr([StringAttr(path) for path in regions])
        types = [
            tensor_type(numbers(v.aval), f"result {i} of primitive '{name}'") for i, v in enumerate(equation.outvars)
        ]
        op = PRIMITIVES[name].create(
            operands=operands, result_types=types, properties=properties, regions=list(regions.values())
        )
        self._block.add_op(op)
        return op.results

    def _scan(self, params: Any, operands: Values) -> Values:
        """As many calls of the body as the scan is long."""
        consts, carried = params["num_consts"], params["num_carry"]
        fixed, carry, rows = operands[:consts], operands[consts : consts + carried], operands[consts + carried :]
        self._tracer.rows.scans.append((fixed, rows))
        body, length = self._tracer.outline(params["jaxpr"]), params["length"]
        if length == 0:
            raise DistirError("primitive 'scan' runs no step: remove it")
        collected: list[Values] = [()] * length
        for i in reversed(range(length)) if params["reverse"] else range(length):
            arguments = [*fixed, *carry, *(self._row(value, i) for value in rows)]
            call = CallOp(body.sym_name.data, arguments, [v.type for v in _results(body.body.block)])
            self._block.add_op(call)
            carry, collected[i] = call.results[:carried], call.results[carried:]
        return [*carry, *(self._stack(each) for each in zip(*collected, strict=True))]

    def _row(self, value: SSAValue, index: int) -> SSAValue:
        lax, rows = library("jax.lax"), self._tracer.rows
        if value in rows.stacked:
            return rows.stacked[value][0][index]
        row, ops = self._written(lambda x: lax.index_in_dim(x, index, keepdims=False), [value])
        rows.taken.setdefault(value, []).append((index, row, ops))
        return row

    def _stack(self, rows: Values) -> SSAValue:
        numpy = library("jax.numpy")
        value, ops = self._written(lambda *xs: numpy.stack(xs), rows)
        self._tracer.rows.stacked[value] = [*rows], ops
        return value

    def _written(self, function: Callable[..., Any], operands: Values) -> tuple[SSAValue, list[Operation]]:
        """The result of a function, and the operations that were written for it."""
        last = self._block.last_op
        result = self.traced(function, operands)
        return result, [*_from(self._block.first_op if last is None else last.next_op)]

    def traced(self, function: Callable[..., Any], operands: Values) -> SSAValue:
        from distir.dialects.jax.jaxprs import shape_of

        closed = library().make_jaxpr(function)(*(shape_of(value.type) for value in operands))
        return self.run(closed.jaxpr, closed.consts, operands)[0]


def _from(op: Operation | None) -> Iterator[Operation]:
    """An operation and those behind it."""
    while op is not None:
        yield op
        op = op.next_op


def _jaxprs(key: str, value: Any) -> list[tuple[str, Any]]:
    """The jaxprs in a parameter, each with where it stands."""
    if hasattr(value, "eqns"):
        return [(f"{key}[open]" if not hasattr(value, "consts") else key, value)]
    if isinstance(value, tuple) and value and all(hasattr(item, "eqns") for item in value):
        return [(f"{key}[{i}]", item) for i, item in enumerate(value)]
    return []
