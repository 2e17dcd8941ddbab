"""An fx graph of ATen operators as operations. In go the graph and its constants; out comes a module of the `aten` dialect."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    NoneType,
    StringAttr,
    UnitAttr,
    f64,
    i32,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, AttrSizedResultSegments

from distir.dialects.aten import OPERATORS, Argument, Schema
from distir.dialects.aten.operators import GIVEN
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Constant, TensorAttr
from distir.dialects.random import BernoulliOp, UniformOp
from distir.dialects.value_names import name_values
from distir.frontends.pytorch.attention import attention_operation, is_attention
from distir.frontends.pytorch.module_paths import path_of
from distir.frontends.pytorch.remembering import Port, TracedFunction
from distir.frontends.pytorch.rewrites import is_draw
from distir.interpreters.aten.calls import element_type, tensor_type
from distir.interpreters.model_names import MODULE, name_updates

IDENTITIES = frozenset({"detach", "alias", "lift_fresh", "lift_fresh_copy"})
"""Operators that do something for autograd or for memory, and nothing to a value."""
LARGEST_CONSTANT = 4096
"""Elements of the largest tensor of integers that becomes a constant, as a number does; others are buffers."""


class GraphImporter:
    """Imports one graph. `constants` are the tensors that the traced function held, by the names of their arguments."""

    def __init__(self, function: TracedFunction, module: fx.GraphModule):
        self.function, self.module = function, module
        self.block = Block()
        self.values: dict[fx.Node, SSAValue | list[SSAValue]] = {}
        self.ports = list(function.ports)
        self.constants: dict[str, Tensor] = {}

    def import_graph(self, results: Sequence[tuple[str, str]]) -> ModuleOp:
        """The module; results have these names and roles, and what is returned as it came is no update."""
        nodes = list(self.module.graph.nodes)
        ports = iter(self.function.ports)
        returned: list[Any] = []
        for node in nodes:
            if node.op == "placeholder":
                self._argument(node, next(ports))
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                returned = list(node.args[0])
        kept: list[tuple[tuple[str, str], SSAValue]] = []
        for key, node in zip(results, returned, strict=True):
            value = cast(SSAValue, self.values[node])
            if key[1] == "output" or isinstance(value.owner, Operation):
                kept.append((key, value))
        self.block.add_op(ReturnOp(*(value for _, value in kept)))
        arguments = [_named(port.name, port.role) for port in self.ports]
        function = FuncOp(
            "main",
            ([a.type for a in self.block.args], [value.type for _, value in kept]),
            Region(self.block),
            arg_attrs=ArrayAttr(arguments) if arguments else None,
            res_attrs=ArrayAttr([_named(*key) for key, _ in kept]),
        )
        name_updates(function)
        return ModuleOp([function])

    def _argument(self, node: fx.Node, port: Port) -> None:
        value = self.block.insert_arg(tensor_type(port.example), len(self.block.args))
        name_values([value], port.name)
        self.values[node] = value

    def _constant(self, node: fx.Node) -> None:
        """A tensor that the traced function held: a constant of the program, or an argument with its value."""
        tensor = self.module
        for name in str(node.target).split("."):
            tensor = getattr(tensor, name)
        assert isinstance(tensor, Tensor)
        written = tensor.dim() == 0 or (not tensor.is_floating_point() and tensor.numel() <= LARGEST_CONSTANT)
        if tensor.is_meta or not written:
            port = Port(f"constant{len(self.constants)}", "buffer", tensor)
            self.ports.append(port)
            if not tensor.is_meta:
                self.constants[port.name] = tensor.detach()
            self._argument(node, port)
            return
        from distir.interpreters.aten.reference import array_of

        constant = Constant(TensorAttr.from_numpy(array_of(tensor.contiguous())))
        self.block.add_op(constant)
        self.values[node] = constant.output

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            whole, index = node.args
            self.values[node] = cast(list[SSAValue], self.values[cast(fx.Node, whole)])[cast(int, index)]
            return
        if is_draw(node):
            self.values[node] = self._draw(node)
            return
        if is_attention(node.target):
            self.values[node] = self._attention(node)
            return
        schema = _schema_of(node)
        if schema.packet in IDENTITIES or _is_plain_copy(node, schema):
            self.values[node] = self.values[cast(fx.Node, node.args[0])]
            return
        if schema.is_random:
            raise DistirError(
                f"aten.{schema.qualified_name} draws random numbers{_where(node)} in a way that no program has: draw them with "
                "torch.rand, randn or randint and compute the others from these, or call model.eval() if it is of training"
            )
        if (same := _seen_before(node, schema)) is not None:
            self.values[node] = self.values[same]
            return
        op = self._operation(node, schema)
        self._add(op, node)
        listed = isinstance(node.meta["val"], list | tuple)
        self.values[node] = list(op.results) if listed else op.results[0]

    def _add(self, op: Operation, node: fx.Node) -> None:
        """Adds what a node becomes, with the node's names."""
        if path := path_of(node):
            op.attributes[MODULE] = StringAttr(path)
        self.block.add_op(op)
        name_values(op.results, node.name)

    def _draw(self, node: fx.Node) -> SSAValue:
        """A draw by positions (`draws`)."""
        key, positions, *probability = cast(Any, node.args)
        by, at = cast(SSAValue, self.values[key]), [cast(SSAValue, self.values[each]) for each in positions]
        op = BernoulliOp(by, at, *probability) if probability else UniformOp(by, at)
        self._add(op, node)
        return op.output

    def _attention(self, node: fx.Node) -> list[SSAValue]:
        """Attention as one operation (`attention`)."""
        of: Any = self.values.__getitem__
        given: Any = map_arg(node.args, of)
        op = attention_operation(node.target, given, node.meta["val"])
        self._add(op, node)
        return list(op.results)

    def _operation(self, node: fx.Node, schema: Schema) -> Operation:
        given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
        schema = _with_scalars(schema, given)
        operands: list[SSAValue] = []
        segments: list[int] = []
        properties: dict[str, Attribute] = {}
        for argument in schema.arguments:
            value = given.get(argument.name)
            if argument.is_placement:
                _refuse_layout(schema, argument, value)
            elif argument.is_tensor:
                members = [self._operand(schema, v, node) for v in self._members(argument, value) if v is not None]
                if argument.items_optional and value is not None:
                    mask = [BoolAttr.from_bool(v is not None) for v in cast(list[Any], value)]
                    properties[argument.name + GIVEN] = ArrayAttr(mask)
                operands += members
                segments.append(len(members))
            elif argument.name in given and not _is_default(argument, value):
                properties[argument.name] = _attribute(schema, argument, value)
            elif argument.name in _POSITIONS and argument.default is not None:
                properties[argument.name] = _attribute(schema, argument, int(argument.default))
        segmented = sum(a.is_tensor and (a.optional or a.is_list) for a in schema.arguments)
        if segmented > 1:
            properties[AttrSizedOperandSegments.attribute_name] = DenseArrayBase.from_list(i32, segments)
        types, counts = _result_types(node.meta["val"])
        if sum(type_.endswith("[]") for type_ in schema.results) > 1:
            properties[AttrSizedResultSegments.attribute_name] = DenseArrayBase.from_list(i32, counts)
        return OPERATORS[f"aten.{schema.qualified_name}"].create(
            operands=operands, result_types=types, properties=properties
        )

    @staticmethod
    def _members(argument: Argument, value: Any) -> list[Any]:
        if argument.is_list:
            return list(value) if value is not None else []
        return [value]

    def _operand(self, schema: Schema, value: Any, node: fx.Node) -> SSAValue:
        if isinstance(value, fx.Node):
            found = self.values[value]
            if isinstance(found, SSAValue):
                return found
        if isinstance(value, bool | int | float):
            dtype = torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, int) else torch.float64
            return self._number(value, dtype)
        if isinstance(value, complex) and isinstance(result := node.meta["val"], torch.Tensor) and result.is_complex():
            parts = [self._number(part, result.dtype.to_real()) for part in (value.real, value.imag)]
            types = [tensor_type(torch.empty((), dtype=result.dtype))]
            op = OPERATORS["aten.complex"].create(operands=parts, result_types=types)
            self.block.add_op(op)
            return op.results[0]
        raise DistirError(f"aten.{schema.qualified_name}: expected a tensor, got a {type(value).__name__}")

    def _number(self, value: bool | int | float, dtype: torch.dtype) -> SSAValue:
        properties = {"s": _number(value), "dtype": element_type(dtype)}
        types = [tensor_type(torch.empty((), dtype=dtype))]
        op = OPERATORS["aten.scalar_tensor"].create(result_types=types, properties=properties)
        self.block.add_op(op)
        return op.results[0]


def _is_plain_copy(node: fx.Node, schema: Schema) -> bool:
    """Whether a node copies a tensor as it lies in memory, which is nothing to a value."""
    source = node.args[0] if schema.packet == "clone" else None
    return isinstance(source, fx.Node) and _geometry(node.meta["val"]) == _geometry(source.meta["val"])


def _seen_before(node: fx.Node, schema: Schema) -> fx.Node | None:
    """The value that a view of a view of it is again, such as a matrix transposed twice."""
    here, seen = node, schema
    while seen.is_view and isinstance(source := here.args[0], fx.Node):
        mine, its = node.meta["val"], source.meta["val"]
        if isinstance(mine, Tensor) and isinstance(its, Tensor) and _geometry(mine) == _geometry(its):
            return source
        if source.op != "call_function" or not isinstance(source.target, torch._ops.OpOverload) or is_draw(source):  # pyright: ignore
            return None
        here, seen = source, _schema_of(source)
    return None


def _geometry(tensor: Tensor) -> object:
    """Equal for tensors that are the same elements, if they are of the same memory; a view may be the conjugate or negative."""
    signs = tensor.is_conj(), tensor.is_neg()
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), signs


def _schema_of(node: fx.Node) -> Schema:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):  # pyright: ignore[reportPrivateUsage]
        raise DistirError(f"{target} is no operator of PyTorch{_where(node)}: it cannot be imported")
    name = target._schema.name.replace("::", ".")  # pyright: ignore[reportPrivateUsage]
    overload = target._overloadname  # pyright: ignore[reportPrivateUsage]
    name += "" if overload == "default" else f".{overload}"
    if name not in OPERATORS:
        raise DistirError(f"{name} is not in the aten dialect{_where(node)}: it is no functional operator of ATen")
    return OPERATORS[name].schema


def _where(node: fx.Node) -> str:
    """The line of the user's code that a node comes from, where the trace knows it."""
    stack = str(node.meta.get("stack_trace") or "").strip().splitlines()
    return f" ({stack[-1].strip()})" if stack else ""


def _with_scalars(schema: Schema, given: Mapping[str, Any]) -> Schema:
    """The overload that takes a number where this one takes a tensor and is given a number (`x * 2`); itself if none."""
    numbers = [
        a.name for a in schema.arguments if a.type == "Tensor" and isinstance(given.get(a.name), bool | int | float)
    ]
    if not numbers:
        return schema
    wanted = [(a.name, "Scalar" if a.name in numbers else a.type) for a in schema.arguments]
    for cls in OPERATORS.values():
        if cls.schema.packet == schema.packet and [(a.name, a.type) for a in cls.schema.arguments] == wanted:
            return cls.schema
    return schema


def _refuse_layout(schema: Schema, argument: Argument, value: Any) -> None:
    if argument.type == "Layout" and value not in (None, torch.strided):
        raise DistirError(f"aten.{schema.qualified_name}: {value} is not supported: programs have dense tensors")


_POSITIONS = ("diagonal",)
"""Integers from which an operator counts positions: shards have others, so an operation states them where they are the default too."""


def _is_default(argument: Argument, value: Any) -> bool:
    if value is None:
        return argument.default in (None, "None")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return argument.default is not None and argument.default.strip("\"'").lower() == text.lower()


def _attribute(schema: Schema, argument: Argument, value: Any) -> Attribute:
    if value is None:
        return UnitAttr()
    if argument.is_list:
        items = [value] if not isinstance(value, list | tuple) else list(cast(Sequence[Any], value))
        if argument.type == "int[]":
            return DenseArrayBase.from_list(i64, [int(item) for item in items])
        return ArrayAttr([_number(item) for item in items])
    if argument.type == "ScalarType":
        return element_type(value)
    if argument.type == "float":
        return FloatAttr(float(value), f64)
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, bool | int | float):
        return _number(value)
    raise DistirError(f"aten.{schema.qualified_name}: '{argument.name}' is {value}, which no program can hold")


def _number(value: bool | int | float) -> Attribute:
    if isinstance(value, bool):
        return BoolAttr.from_bool(value)
    return IntegerAttr(value, i64) if isinstance(value, int) else FloatAttr(value, f64)


def _result_types(value: Any) -> tuple[list[Attribute], list[int]]:
    """The types of all results, and how many each result of the schema has."""
    results: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    members = [list(cast(Sequence[Any], r)) if isinstance(r, list | tuple) else [r] for r in results]
    types: list[Attribute] = [NoneType() if each is None else tensor_type(each) for group in members for each in group]
    return types, [len(group) for group in members]


def _named(name: str, role: str) -> DictionaryAttr:
    return DictionaryAttr({"dist.name": StringAttr(name), "dist.role": StringAttr(role)})
