"""Writes `schemas.json`. In goes the installed onnx; out come its operators, in the compact form that the dialect is
built from.

    python -m distir.dialects.onnx.generate_schemas

Run it when onnx is upgraded. The dialect reads the table instead of importing onnx, which would take longer than a
whole run of `distir-opt`. One operator a line, so that an upgrade reads as a diff; sets of types are shared by index.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import onnx
import onnx.defs
from onnx.defs import OpSchema


def _default(attribute: OpSchema.Attribute) -> object:
    if not attribute.default_value.name:
        return None
    value: object = onnx.helper.get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value if isinstance(value, int | float) else None


def _is_deterministic(schema: OpSchema) -> bool:
    """Whether an operator draws nothing at random. "Unknown" marks four (DepthToSpace among them) that do not. A function that has an `If` is
    what its graphs are: onnx takes it for one that draws."""
    if getattr(schema, "has_function"):
        return _all_deterministic(schema.function_body.node)
    return str(getattr(schema, "node_determinism")) != "NodeDeterminism.NonDeterministic"


def _all_deterministic(nodes: Iterable[onnx.NodeProto]) -> bool:
    for node in nodes:
        graphs = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        if not all(_all_deterministic(graph.node) for graph in graphs):
            return False
        if not graphs and not _is_deterministic(onnx.defs.get_schema(node.op_type, node.domain)):
            return False
    return True


def schema_lines() -> tuple[list[list[str]], list[dict[str, object]]]:
    """The shared sets of type strings, and one record per operator (newest version of each, all domains)."""
    type_sets: list[list[str]] = []

    def index_of(types: list[str]) -> int:
        if types not in type_sets:
            type_sets.append(types)
        return type_sets.index(types)

    records: list[dict[str, object]] = []
    for schema in sorted(onnx.defs.get_all_schemas(), key=lambda s: (s.domain, s.name)):
        variables = {c.type_param_str: index_of(sorted(c.allowed_type_strs)) for c in schema.type_constraints}

        def parameters(
            formals: list[OpSchema.FormalParameter], variables: dict[str, int] = variables
        ) -> list[list[object]]:
            return [
                [
                    formal.name,
                    formal.type_str,
                    variables[formal.type_str] if formal.type_str in variables else index_of([formal.type_str]),
                    str(formal.option).rpartition(".")[2].lower(),
                    formal.is_homogeneous and formal.type_str in variables,
                ]
                for formal in formals
            ]

        records.append(
            {
                "name": schema.name,
                "domain": schema.domain,
                "since": schema.since_version,
                "deterministic": _is_deterministic(schema),
                "deprecated": schema.deprecated,
                "inputs": parameters(list(schema.inputs)),
                "outputs": parameters(list(schema.outputs)),
                "attributes": [
                    [a.name, str(a.type).rpartition(".")[2], a.required, _default(a)]
                    for a in sorted(schema.attributes.values(), key=lambda a: a.name)
                ],
            }
        )
    return type_sets, records


def main() -> None:
    type_sets, records = schema_lines()

    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    text = (
        f'{{"onnx":"{onnx.__version__}","opset":{onnx.defs.onnx_opset_version()},\n"type_sets":[\n'
        + ",\n".join(map(compact, type_sets))
        + '\n],"operators":[\n'
        + ",\n".join(map(compact, records))
        + "\n]}\n"
    )
    Path(__file__).with_name("schemas.json").write_text(text)


if __name__ == "__main__":
    main()
