"""Writes programs as ONNX models. In goes a program; out comes a model. A level 1 program becomes standard ONNX. A
rank program (level 4) has its compute parts in ONNX and its communication as operators of the domain `distir.rank`.

    model = export_model(module)              # an onnx.ModelProto
    save_model(module, "model.onnx")          # large weights in model.onnx.data beside it

`distir.frontends.onnx.import_model` reads such a model as the same program: parameters and buffers with values are
initializers, roles and updates are metadata. Functions become ONNX functions; packed tuples are spread; slices,
joins and sums of the `dist` dialect become ONNX operators. The gradient operators keep their domain `distir.grad`.
Sharding attributes are not exported. A runtime that runs a rank program keeps the order of the `distir.rank` nodes
of the file.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType, TupleType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from distir.backends.onnx_nodes import NODES, Names, rank_node
from distir.dialects.dist import MoveOp, PackOp, UnpackOp
from distir.dialects.errors import DistirError
from distir.dialects.grad import GradOp
from distir.dialects.onnx import OPSET_VERSION, SCHEMAS, NoValue, OnnxOperation
from distir.dialects.onnx.protos import node_proto, type_proto
from distir.dialects.rank import RankOp
from distir.frontends.onnx.domains import GRADIENT_DOMAIN
from distir.frontends.shapes import argument_dims
from distir.interpreters.entry import DEVICES, PART, RANK, Port, arguments_of, attributes_of, entry_function, results_of
from distir.interpreters.global_arrays import Array, Site, distribute
from distir.interpreters.weights import weights_of, write_atomically

__all__ = ["FUNCTION_DOMAIN", "RANK_DOMAIN", "export_model", "save_model"]

RANK_DOMAIN = "distir.rank"
"""The custom domain of communication."""
FUNCTION_DOMAIN = "distir.functions"
"""The domain of the program's own functions."""

LARGEST_INLINE_BYTES = 256 << 20
"""Models with more bytes of weights are written with external data."""

_GRADIENT_NAMES = {
    "grad.matmul_grad": "MatmulGrad",
    "grad.relu_grad": "ReluGrad",
    "grad.loss": "Loss",
    "grad.loss_grad": "LossGrad",
    "grad.sgd": "Sgd",
}


def export_model(module: ModuleOp, entry: str = "main") -> ModelProto:
    """The program as a model that `onnx.checker` accepts, weights included.

    Raises DistirError for a program that is not at level 1, 2 or 4, and for weights beyond the 2 GB of a protobuf
    (`save_model` has no such limit)."""
    model, weights = _export(module, entry)
    size = sum(array.nbytes for array in weights.values())
    if size + model.ByteSize() >= 1 << 31:
        raise DistirError(f"{size:,} bytes of weights do not fit in one protobuf: write a file with save_model")
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def save_model(module: ModuleOp, path: str | os.PathLike[str], entry: str = "main") -> None:
    """Write the model; weights of more than 256 MB go to a file beside it, one at a time."""
    path = Path(path)
    model, weights = _export(module, entry)
    files: dict[Path, Callable[[Path], object]] = {}
    if sum(array.nbytes for array in weights.values()) <= LARGEST_INLINE_BYTES:
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    else:
        data = path.with_name(f"{path.name}.data")
        files[data] = lambda temporary: _write_data(weights, model, temporary, data.name)
    files[path] = lambda temporary: temporary.write_bytes(model.SerializeToString())
    write_atomically(files)


def _write_data(weights: Mapping[str, Array], model: ModelProto, path: Path, location: str) -> None:
    with open(path, "wb") as file:
        for name, array in weights.items():
            tensor = model.graph.initializer.add(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL)
            tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            file.seek(-file.tell() % 64, os.SEEK_CUR)
            fields = {"location": location, "offset": file.tell(), "length": array.nbytes}
            for key, value in fields.items():
                tensor.external_data.add(key=key, value=str(value))
            np.ascontiguousarray(array).tofile(file)


def _export(module: ModuleOp, entry: str) -> tuple[ModelProto, dict[str, Array]]:
    """The model without the values of its parameters, and those."""
    function = entry_function(module, entry)
    ports, results = arguments_of(function), results_of(function)
    _refuse_placed(module)
    names = Names()
    block = function.body.block
    metadata: dict[str, str] = {
        key: str(module.attributes[key]).split(" ")[0] for key in (DEVICES, RANK) if key in module.attributes
    }
    carried = weights_of(module)
    inputs: list[onnx.ValueInfoProto] = []
    weights: dict[str, Array] = {}
    of_value: dict[str, str] = {}
    for i, (port, argument) in enumerate(zip(ports, block.args, strict=True)):
        (name,) = names.define(argument, port.name)
        of_value.setdefault(port.name, name)
        _note_part(metadata, name, attributes_of(function.arg_attrs, len(ports))[i])
        if port.role is not None and port.role != "input":
            metadata[f"dist.role:{name}"] = port.role
        if port.role in ("parameter", "buffer") and port.name in carried:
            (weights[name],) = distribute([Site(0, port)], carried)
            continue
        inputs.append(_value_info(name, argument.type, argument_dims(function, i)))
    outputs = _name_outputs(block, ports, results, names)
    for i, (name, port) in enumerate(zip(outputs, results, strict=True)):
        _note_part(metadata, name, attributes_of(function.res_attrs, len(results))[i])
        if port.role not in (None, "output"):
            metadata[f"dist.update:{name}"] = of_value.get(port.name, port.name)
    translator = _Translator(names)
    nodes = translator.block(block)
    returned = cast(func.ReturnOp, block.last_op)
    for name, value in zip(outputs, returned.operands, strict=True):
        if (source := names[value]) != name:
            nodes.append(helper.make_node("Identity", [source], [name]))
    graph = helper.make_graph(
        nodes,
        entry,
        inputs,
        [_value_info(n, v.type, None) for n, v in zip(outputs, returned.operands, strict=True)],
        value_info=translator.value_info,
    )
    functions = [f for f in module.ops if isinstance(f, func.FuncOp) and f is not function]
    protos = [_function_proto(f) for f in functions]
    used = {node.domain for node in nodes} | {node.domain for proto in protos for node in proto.node}
    model = helper.make_model(graph, opset_imports=_opsets(used), functions=protos, producer_name="distir")
    helper.set_model_props(model, metadata)
    return model, weights


def _refuse_placed(module: ModuleOp) -> None:
    for op in module.walk():
        if op.dialect_name() == "dist" and not isinstance(op, (*NODES, PackOp, UnpackOp, MoveOp)):
            raise DistirError(f"{op.name} has no place in an ONNX model: export one rank's program (project-to-rank)")


def _note_part(metadata: dict[str, str], name: str, attributes: Mapping[str, Attribute]) -> None:
    if (part := attributes.get(PART)) is not None:
        metadata[f"dist.part:{name}"] = str(part)


def _name_outputs(block: Block, ports: Sequence[Port], results: Sequence[Port], names: Names) -> list[str]:
    """A name of its own for every result; the operation that gives it uses that name, if it is the first."""
    returned = cast(func.ReturnOp, block.last_op)
    arguments = {port.name for port in ports}
    outputs: list[str] = []
    for port, value in zip(results, returned.operands, strict=True):
        if isinstance(value, BlockArgument) and names[value] == port.name and port.name not in outputs:
            outputs.append(port.name)
            continue
        name = names.fresh(f"{port.name}_updated" if port.name in arguments else port.name)
        outputs.append(name)
        if isinstance(value.owner, Operation) and not names.knows(value) and not isinstance(value.type, TupleType):
            names.assign(value, name)
    return outputs


def _value_info(name: str, type: Attribute, dims: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    proto = type_proto(type)
    for dim, known in zip(proto.tensor_type.shape.dim, dims or (), strict=False):
        if isinstance(known, str):
            dim.dim_param = known
    return helper.make_value_info(name, proto)


def _opsets(domains: set[str]) -> list[onnx.OperatorSetIdProto]:
    versions = {"": OPSET_VERSION}
    for domain in sorted(domains - {""}):
        versions[domain] = max((s.since_version for s in SCHEMAS.values() if s.domain == domain), default=1)
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _function_proto(function: func.FuncOp) -> onnx.FunctionProto:
    names, block = Names(), function.body.block
    inputs = [name for argument in block.args for name in names.define(argument)]
    nodes = _Translator(names).block(block)
    outputs: list[str] = []
    for value in cast(func.ReturnOp, block.last_op).operands:
        for source in names.all_of(value):
            name = source
            if source in outputs or source in inputs:
                nodes.append(helper.make_node("Identity", [source], [name := names.fresh("result")]))
            outputs.append(name)
    opsets = _opsets({node.domain for node in nodes})
    return helper.make_function(FUNCTION_DOMAIN, function.sym_name.data, inputs, outputs, nodes, opsets)


class _Translator:
    """The operations of one block as nodes."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.value_info: list[onnx.ValueInfoProto] = []

    def block(self, block: Block) -> list[NodeProto]:
        nodes: list[NodeProto] = []
        for op in block.ops:
            if isinstance(op, func.ReturnOp | NoValue):
                continue
            made = self._nodes(op)
            label = op.attributes.get("onnx_node_name")
            if made and isinstance(label, StringAttr):
                made[-1].name = label.data
            nodes += made
            self.value_info += [
                helper.make_value_info(self.names[result], type_proto(result.type))
                for result in op.results
                if isinstance(result.type, TensorType) and isinstance(op, OnnxOperation)
            ]
        return nodes

    def _nodes(self, op: Operation) -> list[NodeProto]:
        names = self.names
        match op:
            case OnnxOperation():
                return [node_proto(op, cast(Callable[[SSAValue], str], names.__getitem__))]
            case MoveOp() | PackOp():
                names.alias(op.results[0], [n for value in op.operands for n in names.all_of(value)])
                return []
            case UnpackOp():
                for value, name in zip(op.results, names.all_of(op.operands[0]), strict=True):
                    names.alias(value, [name])
                return []
            case func.CallOp():
                inputs = [n for value in op.operands for n in names.all_of(value)]
                outputs = [n for value in op.results for n in names.define(value)]
                return [helper.make_node(op.callee.string_value(), inputs, outputs, domain=FUNCTION_DOMAIN)]
            case GradOp():
                return [self._gradient(op)]
            case RankOp():
                return [rank_node(op, names, RANK_DOMAIN)]
            case _ if type(op) in NODES:
                return NODES[type(op)](op, names)
            case _:
                raise DistirError(
                    f"{op.name} has no place in an ONNX model: it holds onnx, grad, rank and dist operations"
                )

    def _gradient(self, op: GradOp) -> NodeProto:
        attributes = {name: cast(Any, value).value.data for name, value in op.properties.items()}
        inputs = [self.names[value] for value in op.operands]
        outputs = [self.names[value] for value in op.results]
        return helper.make_node(_GRADIENT_NAMES[op.name], inputs, outputs, domain=GRADIENT_DOMAIN, **attributes)
