"""Random valid level 3 programs for hypothesis: several devices and streams, every communication op, local and gradient
ops, and nested calls of templates on relocated devices.

Every operand that an op needs can always be had: an existing value of the type, a new argument, or zeros.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    TupleType,
    f32,
    f64,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects import dist, grad
from distir.dialects.dist.attributes import on_device, placed
from distir.dialects.dist.calls import caller_types, function_devices, is_placed
from distir.dialects.onnx import OPERATORS, numpy_dtype
from distir.dialects.reductions import Reduction
from distir.interpreters.entry import arguments_of, entry_function

Draw = Callable[[st.SearchStrategy[Any]], Any]
EXTENTS = (1, 2, 3, 4, 6)


@dataclass
class Body:
    """A function while it is made."""

    draw: Draw
    devices: int
    """0: a template without placement."""
    functions: Sequence[func.FuncOp]
    """What it may call."""
    entry: bool = False
    block: Block = field(default_factory=Block)
    values: list[SSAValue] = field(default_factory=list)

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def place(self, device: int | None = None) -> dist.OnAttr | None:
        if not self.devices:
            return None
        device = self.draw(st.integers(0, self.devices - 1)) if device is None else device
        return on_device(device, self.pick(["", "", "comm"]))

    def places(self, least: int = 1) -> list[dist.OnAttr]:
        """Distinct participants, in any order."""
        order = self.draw(st.permutations(range(self.devices)))
        count = self.draw(st.integers(min(least, self.devices), self.devices))
        return [place for d in order[:count] if (place := self.place(d)) is not None]

    def type(self, on: dist.OnAttr | None, shape: Sequence[int] | None = None, element: Any = None) -> Any:
        shape = (self.pick(EXTENTS), self.pick(EXTENTS)) if shape is None else shape
        element = self.pick([f32, f32, f64, i64]) if element is None else element
        return placed(TensorType(element, shape), on)

    def value(self, type_: Attribute) -> SSAValue:
        """Some value of this type."""
        known = [v for v in self.values if v.type == type_]
        if known and self.draw(st.booleans()):
            return self.pick(known)
        if isinstance(type_, TupleType):
            if self.entry or self.draw(st.booleans()):
                return self.add(dist.PackOp([self.value(t) for t in type_.types.data]))[0]
        elif self.draw(st.integers(0, 3)) == 0:
            return self.add(dist.ZerosOp(type_))[0]
        argument = self.block.insert_arg(type_, len(self.block.args))
        self.values.append(argument)
        return argument

    def add(self, op: Operation) -> Sequence[SSAValue]:
        self.block.add_op(op)
        self.values.extend(op.results)
        return op.results

    def tensors(self) -> list[SSAValue]:
        return [v for v in self.values if isinstance(v.type, TensorType)]


# --- one function per op: adds it with random operands ----------------------------------------------------------------


def send(body: Body) -> None:
    source, target = body.places(2)[:2]
    type_ = body.type(source)
    body.add(dist.SendOp(body.value(type_), placed(type_, target)))


def move(body: Body) -> None:
    on = body.place()
    assert on is not None
    body.add(dist.MoveOp(body.value(body.type(on)), "comm" if on.stream == "" else ""))


def same_type(body: Body, places: Sequence[dist.OnAttr]) -> list[Any]:
    first = body.type(None)
    return [placed(first, on) for on in places]


def cut(body: Body, places: Sequence[dist.OnAttr]) -> tuple[int, list[Any], Any]:
    """A dim, types whose extents of it differ, and the type of all joined."""
    dim, shape, element = body.pick([0, 1]), [body.pick(EXTENTS), body.pick(EXTENTS)], body.pick([f32, f64, i64])
    extents = [body.pick(EXTENTS) for _ in places]

    def tensor(extent: int) -> Any:
        return TensorType(element, [extent if i == dim else n for i, n in enumerate(shape)])

    return dim, [placed(tensor(e), on) for e, on in zip(extents, places, strict=True)], tensor(sum(extents))


def allreduce(body: Body) -> None:
    values = [body.value(t) for t in same_type(body, body.places())]
    body.add(dist.AllReduceOp(values, body.pick(list(Reduction))))


def allgather(body: Body) -> None:
    places = body.places()
    dim, types, joined = cut(body, places)
    body.add(dist.AllGatherOp([body.value(t) for t in types], dim, [placed(joined, on) for on in places]))


def reducescatter(body: Body) -> None:
    places = body.places()
    dim, types, joined = cut(body, places)
    values = [body.value(placed(joined, on)) for on in places]
    body.add(dist.ReduceScatterOp(values, dim, types, body.pick(list(Reduction))))


def alltoall(body: Body) -> None:
    places = body.places()
    n, split, concat = len(places), body.pick([0, 1]), body.pick([0, 1])
    shape = [body.pick(EXTENTS), body.pick(EXTENTS)]
    shape[split] *= n
    result = list(shape)
    result[split] //= n
    result[concat] *= n
    values = [body.value(placed(TensorType(f32, shape), on)) for on in places]
    body.add(dist.AllToAllOp(values, split, concat, [placed(TensorType(f32, result), on) for on in places]))


def exchange(body: Body) -> None:
    places = body.places()
    dim, types, joined = cut(body, places)
    whole, starts, results = joined.get_shape()[dim], [], []
    for type_, on in zip(types, places, strict=True):
        start = body.draw(st.integers(0, whole - 1))
        extent = body.draw(st.integers(1, whole - start))
        shape = [extent if i == dim else n for i, n in enumerate(type_.get_shape())]
        starts.append(start)
        results.append(placed(TensorType(joined.element_type, shape), on))
    body.add(dist.ExchangeOp([body.value(t) for t in types], dim, starts, results))


def broadcast(body: Body) -> None:
    root, types = body.place(), same_type(body, body.places())
    body.add(dist.BroadcastOp(body.value(placed(types[0], root)), types))


def scatter(body: Body) -> None:
    dim, types, joined = cut(body, body.places())
    body.add(dist.ScatterOp(body.value(placed(joined, body.place())), dim, types))


def gather(body: Body) -> None:
    dim, types, joined = cut(body, body.places())
    body.add(dist.GatherOp([body.value(t) for t in types], dim, placed(joined, body.place())))


def reduce(body: Body) -> None:
    types = same_type(body, body.places())
    result = placed(types[0], body.place())
    body.add(dist.ReduceOp([body.value(t) for t in types], result, body.pick(list(Reduction))))


def slice_(body: Body) -> None:
    value = body.value(body.type(body.place()))
    ranges = []
    for extent in value.type.get_shape():
        start = body.draw(st.integers(0, extent))
        ranges.append((start, body.draw(st.integers(start, extent))))
    if all(stop > start for start, stop in ranges):
        body.add(dist.SliceOp(value, ranges))


def concat(body: Body) -> None:
    on = body.place()
    places = [on] * body.draw(st.integers(1, 3))
    dim, types, _ = cut(body, places)
    body.add(dist.ConcatOp([body.value(t) for t in types], dim))


def accumulate(body: Body) -> None:
    type_ = body.type(body.place())
    values = [body.value(type_) for _ in range(body.draw(st.integers(1, 3)))]
    body.add(dist.AccumulateOp(values, body.pick(list(Reduction))))


def scale(body: Body) -> None:
    body.add(dist.ScaleOp(body.value(body.type(body.place())), body.draw(st.integers(-3, 3)), body.pick([1, 2, 3])))


def pack(body: Body) -> None:
    on = body.place()
    body.add(dist.PackOp([body.value(body.type(on)) for _ in range(body.draw(st.integers(1, 3)))]))


def unpack(body: Body) -> None:
    on = body.place()
    types = tuple(body.type(on) for _ in range(body.draw(st.integers(1, 2))))
    body.add(dist.UnpackOp(body.value(TupleType(types))))


def relu_grad(body: Body) -> None:
    type_ = body.type(body.place())
    body.add(grad.ReluGradOp.create(operands=[body.value(type_), body.value(type_)], result_types=[type_]))


def loss_grad(body: Body) -> None:
    on = body.place()
    type_, count = body.type(on, element=f32), body.type(on, (), f32)
    operands = [body.value(type_), body.value(type_), body.value(count)]
    body.add(grad.LossGradOp.create(operands=operands, result_types=[type_]))


def matmul_grad(body: Body) -> None:
    on, (m, k, n) = body.place(), [body.pick(EXTENTS) for _ in range(3)]
    x, w, dy = (body.type(on, shape, f32) for shape in ((m, k), (k, n), (m, n)))
    body.add(grad.MatmulGradOp.create(operands=[body.value(t) for t in (x, w, dy)], result_types=[x, w]))


def sgd(body: Body) -> None:
    type_ = body.type(body.place(), element=f64)
    body.add(grad.SgdOp(body.value(type_), body.value(type_), 0.125))


def onnx_add(body: Body) -> None:
    type_ = body.type(body.place(), element=f32)
    body.add(OPERATORS["Add"].create(operands=[body.value(type_), body.value(type_)], result_types=[type_]))


def call(body: Body) -> None:
    """A template on devices of the body, in any order; `func.call` is the identity."""
    fitting = [f for f in body.functions if function_devices(f) <= max(body.devices, 1)]
    if not fitting:
        return
    callee = body.pick(fitting)
    inputs, outputs = callee.function_type.inputs.data, callee.function_type.outputs.data
    if not body.devices:
        if not is_placed(callee):
            body.add(func.CallOp(callee.sym_name.data, [body.value(t) for t in inputs], outputs))
        return
    if is_placed(callee) and body.draw(st.integers(0, 3)) == 0:
        body.add(func.CallOp(callee.sym_name.data, [body.value(t) for t in inputs], outputs))
        return
    devices = body.draw(st.permutations(range(body.devices)))[: function_devices(callee)]
    inputs, outputs = (caller_types(types, is_placed(callee), devices) for types in (inputs, outputs))
    body.add(dist.CallOp(callee.sym_name.data, [body.value(t) for t in inputs], devices, outputs))


LOCAL = [slice_, concat, accumulate, scale, pack, unpack, relu_grad, loss_grad, matmul_grad, sgd, onnx_add, call, call]
COMMUNICATION = [send, allreduce, allgather, reducescatter, alltoall, exchange, broadcast, scatter, gather, reduce]


# --- functions and modules --------------------------------------------------------------------------------------------


def fill(body: Body, most: int) -> None:
    kinds = LOCAL + ([move] if body.devices else []) + (COMMUNICATION if body.devices > 1 else [])
    for kind in body.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=most)):
        kind(body)


def returned(body: Body, options: Sequence[SSAValue], most: int) -> list[SSAValue]:
    count = body.draw(st.integers(min(1, len(options)), most)) if options else 0
    return [body.pick(options) for _ in range(count)]


def finish(body: Body, name: str, values: Sequence[SSAValue]) -> func.FuncOp:
    body.block.add_op(func.ReturnOp(*values))
    types = [a.type for a in body.block.args], [v.type for v in values]
    return func.FuncOp(name, types, Region(body.block))


def plain(value: SSAValue) -> Attribute:
    return placed(value.type, None)


def attributes(name: str, part: dist.PartAttr | None) -> DictionaryAttr:
    given: dict[str, Attribute] = {"dist.name": StringAttr(name)}
    return DictionaryAttr(given if part is None else {**given, "dist.part": part})


def parts_of_pairs(draw: Draw, values: Sequence[SSAValue], prefix: str, replicas: bool) -> list[DictionaryAttr]:
    """Names and parts: a value is a whole, or shares a name with the next of its type as the other half, as the other
    pieces, as the other addend, or as a replica."""
    result: list[DictionaryAttr] = []
    while len(result) < len(values):
        i = len(result)
        name = f"{prefix}{i}"
        shape = values[i].type.get_shape()
        rows = shape[0] if shape else 1
        pair = i + 1 < len(values) and plain(values[i]) == plain(values[i + 1]) and shape
        kind = (
            draw(st.sampled_from(["whole", "half", "pieces", "addend"] + ["replica"] * replicas)) if pair else "whole"
        )
        full = [[(0, n)] for n in shape]
        match kind:
            case "half":
                doubled = (2 * rows, *shape[1:])
                halves = [[(0, rows)], [(rows, 2 * rows)]]
                result += [attributes(name, dist.PartAttr([half, *full[1:]], doubled)) for half in halves]
            case "pieces" if rows >= 2:
                doubled = (2 * rows, *shape[1:])
                pieces = [[(0, 1), (rows + 1, 2 * rows)], [(1, rows + 1)]]
                result += [attributes(name, dist.PartAttr([piece, *full[1:]], doubled)) for piece in pieces]
            case "addend":
                result += [attributes(name, dist.PartAttr(full, shape, Reduction.SUM))] * 2
            case "replica":
                result += [attributes(name, dist.PartAttr(full, shape))] * 2
            case _:
                result.append(attributes(name, draw(st.sampled_from([None, dist.PartAttr(full, shape)]))))
    return result


class Program:
    """A module whose entry is @main; hypothesis shows a failing one as text."""

    def __init__(self, module: ModuleOp, devices: int) -> None:
        self.module, self.devices = module, devices

    def __repr__(self) -> str:
        return f"\n{self.module}"[:20_000]


@st.composite
def programs(draw: Draw, most_devices: int = 4) -> Program:
    """Programs on 2 and more devices."""
    devices = draw(st.integers(2, most_devices))
    functions: list[func.FuncOp] = []
    for i in range(draw(st.integers(0, 3))):
        body = Body(draw, draw(st.integers(0, devices)), tuple(functions))
        fill(body, 4)
        functions.append(finish(body, f"f{i}", returned(body, body.values, 3)))
    body = Body(draw, devices, tuple(functions), entry=True)
    fill(body, 10)
    results = returned(body, body.tensors(), 4)
    arguments = list(body.block.args)
    main = finish(body, "main", results)
    if arguments:
        main.properties["arg_attrs"] = ArrayAttr(parts_of_pairs(draw, arguments, "x", replicas=True))
    if results:
        main.properties["res_attrs"] = ArrayAttr(parts_of_pairs(draw, results, "y", replicas=False))
    ops = [main, *functions] if draw(st.booleans()) else [*functions, main]
    return Program(ModuleOp(ops, {"dist.devices": IntegerAttr(devices, i64)}), devices)


def inputs_for(module: ModuleOp, seed: int = 0) -> Mapping[str, np.ndarray]:
    """Global inputs of @main, drawn from a seed."""
    generator = np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}
    for port in arguments_of(entry_function(module, "main")):
        shape = port.type.get_shape() if port.part is None else port.part.global_shape
        inputs[port.name] = generator.integers(-8, 9, shape).astype(numpy_dtype(port.type.element_type))
    return inputs
