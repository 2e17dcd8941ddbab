"""Schemas of ONNX operators. In goes `schemas.json`; out come each operator's inputs, outputs and attributes,
without importing onnx.

The newest version of every operator in the domains that onnx itself defines; imported models are converted to it.
"""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple


class Parameter(NamedTuple):
    """A formal input or output. `types` are the allowed type strings; a `bound` type variable has one type per node."""

    name: str
    type_variable: str
    types: frozenset[str]
    option: Literal["single", "optional", "variadic"]
    bound: bool


class AttributeSchema(NamedTuple):
    """An attribute; `kind` is ONNX's (`INT`, `FLOATS`, `GRAPH`, ...), `default` a Python value or None."""

    name: str
    kind: str
    required: bool
    default: Any


class OperatorSchema(NamedTuple):
    """An operator of ONNX. Attributes are in alphabetical order."""

    name: str
    domain: str
    since_version: int
    deterministic: bool
    deprecated: bool
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: tuple[AttributeSchema, ...]

    @property
    def has_variadic_input(self) -> bool:
        return any(p.option == "variadic" for p in self.inputs)

    @property
    def has_variadic_output(self) -> bool:
        return any(p.option == "variadic" for p in self.outputs)

    def attribute(self, name: str) -> AttributeSchema | None:
        return next((a for a in self.attributes if a.name == name), None)


def _load() -> tuple[int, dict[str, OperatorSchema]]:
    table = json.loads(Path(__file__).with_name("schemas.json").read_text("utf-8"))
    type_sets = [frozenset(types) for types in table["type_sets"]]

    def parameters(rows: list[list[Any]]) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(name, variable, type_sets[types], option, bound) for name, variable, types, option, bound in rows
        )

    schemas = {
        row["name"]: OperatorSchema(
            row["name"],
            row["domain"],
            row["since"],
            row["deterministic"],
            row["deprecated"],
            parameters(row["inputs"]),
            parameters(row["outputs"]),
            tuple(AttributeSchema(*attribute) for attribute in row["attributes"]),
        )
        for row in table["operators"]
    }
    return table["opset"], schemas


OPSET_VERSION, SCHEMAS = _load()
"""The opset that the table describes, and its operators by name (names are unique over the domains)."""
