"""A normalised ONNX graph as operations. In goes the graph; out comes a block with its nodes, values, types and
constants, absent operands and bodies of control flow among them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import AttributeProto, GraphProto, NodeProto, helper, numpy_helper
from xdsl.dialects.builtin import NoneType, StringAttr, UnrankedTensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.onnx import OPERATORS, OPSET_VERSION, SCHEMAS, Constant, NoValue, OperatorSchema, TensorAttr, Yield
from distir.dialects.onnx.apart import are_safe, crashes
from distir.dialects.onnx.operators import is_element_type
from distir.dialects.onnx.protos import type_of, type_proto, with_defaults
from distir.dialects.plugins import told
from distir.dialects.value_names import name_values
from distir.frontends.onnx.domains import ONNX_DOMAINS
from distir.frontends.onnx.loading import LoadedModel
from distir.frontends.onnx.protos import array_of, attribute_of
from distir.frontends.onnx.validity import label
from distir.frontends.onnx.value_types import value_types

_CONSTANT_DTYPES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


_POSITIONS = {"Trilu": 1}
"""Operands from which an operator counts positions, 0 where they are left out: shards have others, so an operation states them."""


class GraphImporter:
    """Imports one graph into one block; a body's importer sees the values of the graphs around it."""

    def __init__(self, loaded: LoadedModel, types: Mapping[str, Attribute], block: Block) -> None:
        self.loaded = loaded
        self.types = types
        self.block = block
        self.values: dict[str, SSAValue] = {}
        self.absent: SSAValue | None = None

    def add(self, op: Operation) -> Operation:
        self.block.add_op(op)
        return op

    def import_nodes(self, graph: GraphProto) -> None:
        """Append the graph's initializers and nodes to the block."""
        for initializer in graph.initializer:
            value = TensorAttr.from_numpy(array_of(initializer, self.loaded.folder, self.loaded.name))
            self.define(initializer.name, self.add(Constant(value)).results[0])
        for node in graph.node:
            self._import_node(node)

    def define(self, name: str, value: SSAValue) -> None:
        """Give a value its name in the graph, and a readable one in the text."""
        self.values[name] = value
        name_values([value], name)

    def operand(self, name: str, user: str) -> SSAValue:
        """The value with this name, or `none` for an absent operand."""
        if not name:
            if self.absent is None:
                no_value = NoValue()
                if (first := self.block.first_op) is None:
                    self.block.add_op(no_value)
                else:
                    self.block.insert_op_before(no_value, first)
                self.absent = no_value.none_val
            return self.absent
        if name not in self.values:
            raise DistirError(f"{self.loaded.name}: {user} uses '{name}', which nothing before it gives")
        return self.values[name]

    def _import_node(self, node: NodeProto) -> None:
        where = label(node)
        if node.op_type == "Constant" and not node.domain:
            op: Operation = Constant(self._constant(node, where))
        elif node.domain in ONNX_DOMAINS:
            op = self._of_domain(node, where)
        elif _needs_its_body(node):
            self._import_body_of(node, where)
            return
        else:
            op = self._operator(node, where)
        if node.name and not isinstance(op, Constant):
            op.attributes["onnx_node_name"] = StringAttr(node.name)
        self.add(op)
        for name, result in zip(node.output, op.results, strict=False):
            if name:
                self.define(name, result)

    def _constant(self, node: NodeProto, where: str) -> TensorAttr:
        if len(node.attribute) != 1:
            given = ", ".join(attribute.name for attribute in node.attribute) or "none"
            raise DistirError(f"{self.loaded.name}: {where} is a Constant with values {given}: expected one")
        (attribute,) = node.attribute
        if attribute.name == "value":
            return TensorAttr.from_numpy(array_of(attribute.t, self.loaded.folder, self.loaded.name))
        dtype = _CONSTANT_DTYPES.get(attribute.name, "object")
        return TensorAttr.from_numpy(np.array(helper.get_attribute_value(attribute), dtype=dtype))

    def _of_domain(self, node: NodeProto, where: str) -> Operation:
        """A node of a domain that is not ONNX's own, as who registered the domain imports it."""
        operands = [self.operand(operand, where) for operand in node.input]
        try:
            return ONNX_DOMAINS[node.domain](node, operands)
        except Exception as error:
            raise DistirError(f"{self.loaded.name}: {where}: {told(error)}") from error

    def _operator(self, node: NodeProto, where: str) -> Operation:
        operator = OPERATORS[node.op_type]
        schema = operator.schema
        operands = [self.operand(name, where) for name in node.input]
        if not schema.has_variadic_input:
            operands += [self.operand("", where) for _ in range(len(schema.inputs) - len(operands))]
        if (place := _POSITIONS.get(node.op_type)) is not None and operands[place] is self.absent:
            operands[place] = self.add(Constant(TensorAttr.from_numpy(np.array(0)))).results[0]
        properties: dict[str, Attribute] = {}
        discardable: dict[str, Attribute] = {}
        graphs: dict[str, GraphProto] = {}
        bodies = [attribute for attribute in schema.attributes if attribute.kind == "GRAPH"]
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                graphs[attribute.name] = attribute.g
                continue
            known = schema.attribute(attribute.name)
            as_type = known is not None and is_element_type(schema, known)
            value = attribute_of(attribute, as_type, self.loaded.folder, self.loaded.name)
            (discardable if known is None else properties)[attribute.name] = value
        return operator.create(
            operands=operands,
            result_types=self._result_types(node, schema, where),
            properties=properties,
            attributes=discardable,
            regions=[self._body(graphs[a.name]) if a.name in graphs else Region() for a in bodies if graphs],
        )

    def _import_body_of(self, node: NodeProto, where: str) -> None:
        """Import the nodes that define an operator in place of the operator."""
        inputs = {name: self.operand(name, where) for name in node.input if name}
        complete = NodeProto()
        complete.CopyFrom(node)
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in onnx.defs.get_schema(node.op_type, OPSET_VERSION, node.domain).attributes.items():
            if name not in given and attribute.default_value.name:
                complete.attribute.append(attribute.default_value)
        graph = helper.make_graph(
            [complete],
            node.op_type,
            [helper.make_value_info(name, type_proto(value.type)) for name, value in inputs.items()],
            [helper.make_value_info(name, onnx.TypeProto()) for name in node.output],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, OPSET_VERSION)])
        operator = (node.domain, node.op_type)
        expanded = onnx.inliner.inline_selected_functions(model, [operator], inline_schema_functions=True)
        known = {name: self.types[name] for name in node.output if name in self.types}
        body = GraphImporter(self.loaded, {**value_types(expanded), **known}, self.block)
        body.values, body.absent = inputs, self.absent
        body.import_nodes(expanded.graph)
        self.absent = body.absent
        for name in filter(None, node.output):
            self.values[name] = body.operand(name, where)

    def _body(self, graph: GraphProto) -> Region:
        """A graph attribute as a region of one block that ends in `onnx.Yield`."""
        types = dict(self.types)
        for value in (*graph.input, *graph.value_info, *graph.output):
            if (type := type_of(value.type)) is not None:
                types[value.name] = type
        initialized = {initializer.name for initializer in graph.initializer}
        inputs = [value for value in graph.input if value.name not in initialized]
        for value in inputs:
            if value.name not in types:
                raise DistirError(f"{self.loaded.name}: input '{value.name}' of a graph inside it has no type")
        block = Block(arg_types=[types[value.name] for value in inputs])
        body = GraphImporter(self.loaded, types, block)
        body.values = dict(self.values)
        for value, argument in zip(inputs, block.args, strict=True):
            body.define(value.name, argument)
        body.import_nodes(graph)
        block.add_op(Yield.create(operands=[body.operand(v.name, "a graph's output") for v in graph.output]))
        return Region(block)

    def _result_types(self, node: NodeProto, schema: OperatorSchema, where: str) -> list[Attribute]:
        names = list(node.output)
        if not schema.has_variadic_output:
            names += [""] * (len(schema.outputs) - len(names))
            if any(not n and p.option == "single" for n, p in zip(names, schema.outputs, strict=False)):
                node = _with_required_results_named(node, names, schema)
                names = list(node.output)
        inferred: dict[str, Attribute] | None = None
        types: list[Attribute] = []
        for name in names:
            type = NoneType() if not name else self.types.get(name)
            if type is None:
                inferred = self._inferred(node) if inferred is None else inferred
                type = inferred.get(name)
                if type is None or isinstance(type, UnrankedTensorType):
                    type = type_of(self.loaded.declared.get(name, onnx.TypeProto())) or type
            if type is None:
                raise DistirError(
                    f"{self.loaded.name}: the type of '{name}', a result of {node.op_type} ({where}), cannot be "
                    f"inferred and is not in the file: add it to the model's value_info"
                )
            types.append(type)
        return types

    def _inferred(self, node: NodeProto) -> dict[str, Attribute]:
        """What onnx says of this node alone: for values behind operators that it does not know."""
        types, data = dict[str, onnx.TypeProto](), dict[str, onnx.TensorProto]()
        for name in filter(None, node.input):
            value = self.values[name]
            types[name] = type_proto(value.type)
            if isinstance(value.owner, Constant):
                data[name] = numpy_helper.from_array(value.owner.value.to_numpy())
        schema = onnx.defs.get_schema(node.op_type, OPSET_VERSION, node.domain)
        opsets = [helper.make_opsetid("", OPSET_VERSION)]

        def infer() -> dict[str, onnx.TypeProto]:
            with with_defaults([node], {"": OPSET_VERSION}):
                return onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=opsets)

        if not are_safe([node]) and crashes(infer):
            raise DistirError(
                f"{self.loaded.name}: onnx's inference of shapes crashes on the attributes of {node.op_type}"
            )
        try:
            results = infer()
        except Exception:
            return {}
        inferred = {name: type_of(type) for name, type in results.items()}
        return {name: type for name, type in inferred.items() if type is not None}


def _with_required_results_named(node: NodeProto, names: Sequence[str], schema: OperatorSchema) -> NodeProto:
    """The node as inference wants it: a result that is not optional has a name, though nothing uses it."""
    (complete := NodeProto()).CopyFrom(node)
    del complete.output[:]
    for i, (name, parameter) in enumerate(zip(names, schema.outputs, strict=True)):
        complete.output.append(name or (f"unused {i}" if parameter.option == "single" else ""))
    return complete


def _needs_its_body(node: NodeProto) -> bool:
    """Whether onnx can infer types only inside the operator's definition (GroupNormalization, for one), or the operator averages
    over samples: what it divides by is a value of the definition, so that a part of the batch is divided by what the whole
    batch is."""
    # Through Any: the stubs of onnx 1.23.2 lack these three.
    schema: Any = onnx.defs.get_schema(node.op_type, SCHEMAS[node.op_type].since_version, node.domain)
    has_body = schema.has_function or schema.has_context_dependent_function
    return has_body and (not schema.has_type_and_shape_inference_function or _averages(node, schema))


def _averages(node: NodeProto, schema: Any) -> bool:
    """Whether the node's attribute `reduction`, if its operator has one, says that it averages."""
    if "reduction" not in schema.attributes:
        return False
    given = [attribute for attribute in node.attribute if attribute.name == "reduction"]
    return (given or [schema.attributes["reduction"].default_value])[0].s == b"mean"
