"""Loads ONNX files. In goes a file or model; out comes a model that the importer can walk: checked, functions
inlined, parameters taken out, newest opset.

Floating-point and quantised initializers become graph inputs first, so that converting a model of any size copies only
its graph; their values stay views of the file. Which of them are parameters is said later (`parameters`)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx.inliner
import onnx.version_converter
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper

from distir.dialects.errors import DistirError
from distir.dialects.onnx import OPSET_VERSION, SCHEMAS
from distir.dialects.onnx.protos import is_floating, is_quantised
from distir.frontends.onnx.contrib import expand_contributed, is_contributed, name_domains
from distir.frontends.onnx.domains import ONNX_DOMAINS
from distir.frontends.onnx.fixed_inputs import fix_inputs
from distir.frontends.onnx.known_branches import take_known_branches
from distir.frontends.onnx.old_scan import restore_scans, scans_over_batches
from distir.frontends.onnx.protos import Array, array_of
from distir.frontends.onnx.sparse import make_dense
from distir.frontends.onnx.until import cut_after
from distir.frontends.onnx.validity import (
    graphs_of,
    label,
    name_default_domain,
    refuse_damage,
    refuse_double_definitions,
    sort_nodes,
)

STANDARD_DOMAINS = frozenset({schema.domain for schema in SCHEMAS.values()})


@dataclass
class LoadedModel:
    """A model at the newest opset without functions, and what was taken out of it."""

    name: str
    folder: Path | None
    proto: ModelProto
    tensors: dict[str, Array] = field(default_factory=dict[str, Array])
    """Values of inputs of the graph that are beside it."""
    roles: dict[str, str] = field(default_factory=dict[str, str])
    """What these are, once it is known (`tensors.settle`)."""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    declared: dict[str, onnx.TypeProto] = field(default_factory=dict[str, onnx.TypeProto])
    """Types that the file gives to values, for operators whose types cannot be inferred."""

    def is_named(self, tensor: str) -> bool:
        """Whether metadata says what a tensor is: it has a role, or is updated."""
        return f"dist.role:{tensor}" in self.metadata or any(
            key.startswith("dist.update:") and name == tensor for key, name in self.metadata.items()
        )


def load_model(
    path_or_model: str | os.PathLike[str] | ModelProto,
    until: Sequence[str] = (),
    values: Mapping[str, float] | None = None,
) -> LoadedModel:
    """Read and normalise a model, up to the values `until`, with fixed `values` of inputs; every mistake in the file is a DistirError that names it."""
    if isinstance(path_or_model, ModelProto):
        name, folder, model = "the model", None, ModelProto()
        model.CopyFrom(path_or_model)
    else:
        path = Path(path_or_model)
        name, folder, model = str(path), path.parent, _read(path)
    if not model.HasField("graph") or not model.opset_import:
        raise DistirError(f"{name}: not an ONNX model: it has no graph or no opset; give a .onnx file")
    loaded = LoadedModel(name, folder, model)
    refuse_damage(model, name)
    refuse_double_definitions(model.graph, name)
    name_default_domain(model)
    make_dense(model, lambda tensor: array_of(tensor, folder, name), name)
    sort_nodes(model, name)
    if values:
        fix_inputs(model, values, name)
    take_known_branches(model.graph)
    if until:
        cut_after(model, until, name)
    loaded.metadata = {entry.key: entry.value for entry in model.metadata_props}
    for value in (*model.graph.value_info, *model.graph.output):
        (declared := onnx.TypeProto()).CopyFrom(value.type)
        loaded.declared[value.name] = declared
    _take_tensors(loaded)
    name_domains(loaded.proto)
    _refuse_unknown_domains(loaded)
    _inline_functions(loaded)
    _refuse_unknown_domains(loaded)
    _refuse_attributes(loaded)
    _convert_to_newest(loaded)
    expand_contributed(loaded.proto, loaded.name)
    return loaded


def _read(path: Path) -> ModelProto:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DistirError(f"{path}: cannot be read: {error.strerror}") from error
    if not data:
        raise DistirError(f"{path}: the file is empty: expected an ONNX model")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise DistirError(f"{path}: not an ONNX model, or cut short ({len(data)} bytes): export it again") from error
    return model


def _take_tensors(loaded: LoadedModel) -> None:
    """Floating-point and quantised initializers, and those that metadata names, become inputs with values on the side."""
    graph = loaded.proto.graph
    initializers = list(graph.initializer)
    names = {initializer.name for initializer in initializers}
    inputs = [value for value in graph.input if value.name not in names]
    del graph.input[:], graph.initializer[:]
    graph.input.extend(inputs)
    for initializer in initializers:
        weightlike = is_floating(initializer.data_type) or is_quantised(initializer.data_type)
        if weightlike or loaded.is_named(initializer.name):
            loaded.tensors[initializer.name] = array_of(initializer, loaded.folder, loaded.name)
            graph.input.append(
                helper.make_tensor_value_info(initializer.name, initializer.data_type, list(initializer.dims))
            )
        else:
            if initializer.data_location == TensorProto.EXTERNAL:
                array = array_of(initializer, loaded.folder, loaded.name)
                initializer = onnx.numpy_helper.from_array(array, initializer.name)
            graph.initializer.append(initializer)


def _refuse_unknown_domains(loaded: LoadedModel) -> None:
    functions = {(function.domain, function.name) for function in loaded.proto.functions}
    for node in _nodes(loaded.proto):
        known = (
            node.domain in STANDARD_DOMAINS
            or node.domain in ONNX_DOMAINS
            or (node.domain, node.op_type) in functions
            or is_contributed(node)
        )
        if not known:
            raise DistirError(
                f"{loaded.name}: operator {node.op_type} of node '{node.name or node.output[0]}' is in the unknown "
                f"domain '{node.domain}': export the model with standard ONNX operators only, or register the domain"
            )


def _refuse_attributes(loaded: LoadedModel) -> None:
    """An attribute that the operator does not have in the file's own opset would change nothing, which is not what was meant; without
    one that it has to have it means nothing. Names with two underscores before them are a runtime's own notes."""
    versions = {opset.domain: opset.version for opset in loaded.proto.opset_import}
    known: dict[tuple[str, str], Mapping[str, bool]] = {}
    for node in _nodes(loaded.proto):
        operator = (node.op_type, node.domain)
        if operator not in known:
            version = versions.get(node.domain, OPSET_VERSION)
            if node.domain in ONNX_DOMAINS or not onnx.defs.has(node.op_type, version, node.domain):
                continue  # refused elsewhere, or of another's own
            schema = onnx.defs.get_schema(node.op_type, version, node.domain)
            known[operator] = {name: each.required for name, each in schema.attributes.items()}
        for attribute in node.attribute:
            if attribute.name not in known[operator] and not attribute.name.startswith("__"):
                has = ", ".join(sorted(known[operator])) or "none"
                raise DistirError(
                    f"{loaded.name}: {label(node)}: {node.op_type} of opset {versions.get(node.domain, OPSET_VERSION)} has no "
                    f"attribute '{attribute.name}' (it has {has})"
                )
        given = {attribute.name for attribute in node.attribute}
        if missing := [name for name, required in known[operator].items() if required and name not in given]:
            raise DistirError(
                f"{loaded.name}: {label(node)}: {node.op_type} has no attribute '{missing[0]}', which it needs"
            )


def _nodes(model: ModelProto) -> list[onnx.NodeProto]:
    """The nodes of the graph and of the graphs inside it."""
    return [node for graph in graphs_of(model.graph) for node in graph.node]


def _inline_functions(loaded: LoadedModel) -> None:
    if loaded.proto.functions:
        try:
            loaded.proto = onnx.inliner.inline_local_functions(loaded.proto, convert_version=True)
        except Exception as error:
            raise DistirError(f"{loaded.name}: its functions cannot be inlined: {_first_line(error)}") from error


def _convert_to_newest(loaded: LoadedModel) -> None:
    """To the opset of the dialect, unless every node already means the same there."""
    versions = {opset.domain: opset.version for opset in loaded.proto.opset_import}
    nodes = _nodes(loaded.proto)
    version = versions.get("", OPSET_VERSION)
    if "" not in versions and any(not node.domain for node in nodes):
        raise DistirError(f"{loaded.name}: it does not say which opset of ONNX it uses: export it again")
    if version < 1:
        raise DistirError(f"{loaded.name}: opset {version}: expected a number of at least 1: is the file damaged?")
    if version > OPSET_VERSION:
        raise DistirError(
            f"{loaded.name}: opset {version} is newer than {OPSET_VERSION}, the newest that onnx {onnx.__version__} "
            f"knows: export it for opset {OPSET_VERSION} or older"
        )
    changed = sorted({n.op_type for n in nodes if _has_changed(loaded.name, n, versions)})
    if not changed:
        return
    # Since IR version 4 initializers need not be inputs, and here they are not.
    loaded.proto.ir_version = max(loaded.proto.ir_version, 4)
    if version < 9:
        scans_over_batches(loaded.proto, loaded.name)
    try:
        loaded.proto = onnx.version_converter.convert_version(loaded.proto, OPSET_VERSION)
    except Exception as error:
        raise DistirError(
            f"{loaded.name}: cannot be converted from opset {version} to {OPSET_VERSION} ({_first_line(error)}); "
            f"operators that changed: {', '.join(changed)}: export it for a newer opset"
        ) from error
    restore_scans(loaded.proto)
    if version < 11:
        _keep_positions(loaded.proto)


def _keep_positions(model: ModelProto) -> None:
    """Before opset 11 an element of a resized value lies at its index divided by the scale, as ONNX Runtime and exporters have it; the converter leaves it
    to the default of opset 11, where it lies half a pixel further."""
    for node in _nodes(model):
        if node.op_type == "Resize" and not node.domain:
            given = {attribute.name for attribute in node.attribute}
            for name, value in (("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")):
                if name not in given:
                    node.attribute.append(helper.make_attribute(name, value))


def _has_changed(model: str, node: onnx.NodeProto, versions: dict[str, int]) -> bool:
    """Whether the newest version of the node's operator is not the one that the model means."""
    schema = SCHEMAS.get(node.op_type)
    if node.domain in ONNX_DOMAINS or is_contributed(node):
        return False
    if schema is None or schema.domain != node.domain:
        if not node.domain and onnx.defs.has(node.op_type, versions.get("", OPSET_VERSION), ""):
            return True
        raise DistirError(
            f"{model}: no operator {node.op_type} ({label(node)}) in domain '{node.domain or 'ai.onnx'}': "
            f"is the name right?"
        )
    if not node.domain:
        return schema.since_version > versions.get("", OPSET_VERSION)
    if not _means_the_same(node, versions.get(node.domain, schema.since_version)):
        raise DistirError(
            f"{model}: operator {node.op_type} of domain '{node.domain}' needs version {schema.since_version} of the "
            f"domain, the model has {versions[node.domain]}: export it with a newer converter"
        )
    return False


def _means_the_same(node: onnx.NodeProto, version: int) -> bool:
    """Whether the operator of this version of its domain is one of the newest: none of its operands, results and attributes is gone."""
    newest = SCHEMAS[node.op_type]
    if version >= newest.since_version:
        return True
    if not onnx.defs.has(node.op_type, version, node.domain):
        return False
    own = onnx.defs.get_schema(node.op_type, version, node.domain)
    arity = (len(own.inputs), len(own.outputs)) == (len(newest.inputs), len(newest.outputs))
    return arity and all(newest.attribute(name) is not None for name in own.attributes)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
