"""ONNX files as level 1 programs.

`import_model` gives `func.func @main` over the `onnx` dialect (and `grad`, for operators of the domain `distir.grad`),
with plain tensors, and `dist.name` and `dist.role` on every argument and result:

* graph inputs are arguments of role `input`; metadata `dist.role:<input>` of the model says `label`, `seed`, `state`..
* parameters (weights, biases, tables that are looked up: `parameters` says which tensors are) are arguments of role `parameter`;
  their values are attached (`distir.interpreters.weights`). Statistics, and large constants, are arguments of role `buffer`
* all other tensors are `onnx.Constant`: shapes are computed from them, and masks are folded
* graph outputs are results of role `output`; metadata `dist.update:<output>` = `<parameter>` says that a result is the
  update of that parameter or state, and gives it its name and role

Any opset is converted to the newest, and functions are inlined. Dimensions that the file leaves open may be bound here
or later (`onnx-fold-shapes{shape="x=8,128"}`).
"""

import os
from collections.abc import Mapping, Sequence

import onnx
import onnx.checker
from onnx import ModelProto
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from distir.dialects.errors import DistirError
from distir.frontends.onnx.graph import GraphImporter
from distir.frontends.onnx.loading import LoadedModel, load_model
from distir.frontends.onnx.parameters import assign_roles
from distir.frontends.onnx.tensors import choose, model_tensors, settle
from distir.frontends.onnx.value_types import value_types
from distir.frontends.shapes import DIM_PARAMS, Dim, bind_dims, dim_params
from distir.interpreters.weights import attach

__all__ = ["import_model"]

INPUT_ROLES = ("input", "label", "seed", "parameter", "state", "buffer")
UPDATED_ROLES = ("parameter", "state", "buffer")


def import_model(
    path_or_model: str | os.PathLike[str] | ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    parameters: Sequence[str] = (),
    constants: Sequence[str] = (),
    until: Sequence[str] = (),
    values: Mapping[str, float] | None = None,
) -> ModuleOp:
    """The model as a module with one function, @main; parameter values are attached to it.

    `shapes` binds the open dimensions of inputs. `parameters` and `constants` are patterns of tensors' names (`h.*.scale`) that
    are parameters, and constants, whatever the importer would take them for. With `until`, the values of these names are the results
    instead of the model's own. `values` are numbers that inputs always have, which are inputs no more (a sampling rate that the model
    decides by). Raises DistirError, one line, for a mistake in the file or the shapes.
    """
    name = "the model" if isinstance(path_or_model, ModelProto) else str(path_or_model)
    try:
        return _import(load_model(path_or_model, until, values), shapes, parameters, constants)
    except (DiagnosticException, DistirError):
        raise
    except MemoryError as error:
        raise DistirError(f"{name}: does not fit in memory: is a shape in it too large?") from error
    except Exception as error:  # a file that is not what onnx says a model is can fail anywhere
        raise DistirError(f"{name}: not a valid ONNX model: {_reason(path_or_model, error)}") from error


def _reason(path_or_model: str | os.PathLike[str] | ModelProto, error: Exception) -> str:
    """What onnx's checker says, or the error if it finds nothing wrong."""
    try:
        model = (
            path_or_model
            if isinstance(path_or_model, ModelProto)
            else onnx.load(path_or_model, load_external_data=False)
        )
        onnx.checker.check_model(model)
    except Exception as found:
        error = found
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"


def _import(
    loaded: LoadedModel,
    shapes: Mapping[str, Sequence[int]] | None,
    parameters: Sequence[str],
    constants: Sequence[str],
) -> ModuleOp:
    open_dims = _bind_inputs(loaded, shapes or {})
    tensors = model_tensors(loaded)
    assign_roles(loaded.proto.graph, tensors, _value_types(loaded))
    choose(tensors, parameters, constants, loaded.name)
    settle(loaded, tensors)
    types = _value_types(loaded)
    inputs = [value.name for value in loaded.proto.graph.input]
    for name in inputs:
        if name not in types:
            raise DistirError(f"{loaded.name}: input '{name}' has no type with a known number of dimensions")

    block = Block(arg_types=[types[name] for name in inputs])
    importer = GraphImporter(loaded, types, block)
    for name, argument in zip(inputs, block.args, strict=True):
        importer.define(name, argument)
    importer.import_nodes(loaded.proto.graph)
    outputs = [output.name for output in loaded.proto.graph.output]
    results = [importer.operand(name, "the graph's output list") for name in outputs]
    importer.add(ReturnOp(*results))

    input_roles = _input_roles(loaded, inputs)
    arguments: list[DictionaryAttr] = []
    for name in inputs:
        attributes = _named(name, input_roles[name])
        if params := dim_params(open_dims.get(name) or ()):
            attributes[DIM_PARAMS] = StringAttr(params)
        arguments.append(DictionaryAttr(attributes))
    updates = _updates(loaded, outputs, input_roles)
    function = FuncOp(
        "main",
        ([argument.type for argument in block.args], [result.type for result in results]),
        Region(block),
        arg_attrs=ArrayAttr(arguments) if arguments else None,
        res_attrs=ArrayAttr(
            [DictionaryAttr(_named(*updates[name]) if name in updates else _named(name, "output")) for name in outputs]
        )
        if outputs
        else None,
    )
    module = ModuleOp([function])
    _verify(module, loaded.name)
    attach(module, loaded.tensors)
    return module


def _verify(module: ModuleOp, where: str) -> None:
    """DistirError, with the node, where the file has an operator that is not as its schema says."""
    try:
        module.verify()
    except VerifyException as error:
        wrong = next((op for op in module.walk() if not _is_valid(op)), module)
        name = wrong.attributes.get("onnx_node_name")
        gives = next((result.name_hint for result in wrong.results), None)
        which = f"node '{name.data}'" if isinstance(name, StringAttr) else f"the node of '{gives}'"
        reason = " ".join(line.strip() for line in str(error).splitlines() if "does not verify" not in line)
        raise DistirError(f"{where}: {wrong.name} ({which}): {reason}") from error


def _is_valid(op: Operation) -> bool:
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException:
        return False
    return True


def _named(name: str, role: str) -> dict[str, Attribute]:
    return {"dist.name": StringAttr(name), "dist.role": StringAttr(role)}


def _declared_dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    """A name without a letter or digit (`?`) says only that the size is not known."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param if any(character.isalnum() for character in dim.dim_param) else None


def _bind_inputs(loaded: LoadedModel, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[Dim] | None]:
    """Put the shapes into the graph's inputs; the dims of each input, open ones by name."""
    inputs = [value for value in loaded.proto.graph.input if value.name not in loaded.tensors]
    declared: dict[str, list[Dim] | None] = {}
    for value in inputs:
        tensor = value.type.tensor_type
        declared[value.name] = None
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            declared[value.name] = [_declared_dim(dim) for dim in tensor.shape.dim]
    bound = bind_dims(declared, shapes)
    for value in inputs:
        dims = bound[value.name]
        if dims is not None:
            value.type.tensor_type.shape.CopyFrom(
                onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, dims).tensor_type.shape
            )
    if shapes:  # what the file says of other values may hold for its own sizes only
        loaded.declared = {}
    return bound


def _value_types(loaded: LoadedModel) -> dict[str, Attribute]:
    """The types of the values of the main graph, without what the file claims of them."""
    graph = loaded.proto.graph
    del graph.value_info[:]  # the version converter leaves wrong shapes behind operators that it does not know
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return value_types(loaded.proto)


def _input_roles(loaded: LoadedModel, inputs: Sequence[str]) -> dict[str, str]:
    roles = {name: loaded.roles.get(name, "input") for name in inputs}
    for key, role in loaded.metadata.items():
        kind, _, name = key.partition(":")
        if kind != "dist.role":
            continue
        if name not in roles:
            raise DistirError(f"{loaded.name}: metadata '{key}' names no input; the inputs are {', '.join(roles)}")
        if role not in INPUT_ROLES:
            raise DistirError(f"{loaded.name}: metadata '{key}' is '{role}', expected one of {', '.join(INPUT_ROLES)}")
        roles[name] = role
    return roles


def _updates(loaded: LoadedModel, outputs: Sequence[str], input_roles: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """For outputs that are updates, the name and role of what they update."""
    updates: dict[str, tuple[str, str]] = {}
    for key, name in loaded.metadata.items():
        kind, _, output = key.partition(":")
        if kind != "dist.update":
            continue
        if output not in outputs:
            raise DistirError(f"{loaded.name}: metadata '{key}' names no output; the outputs are {', '.join(outputs)}")
        if input_roles.get(name) not in UPDATED_ROLES:
            raise DistirError(f"{loaded.name}: metadata '{key}' says '{name}', which is no parameter, state or buffer")
        updates[output] = (name, input_roles[name])
    return updates
