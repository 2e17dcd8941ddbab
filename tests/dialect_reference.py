"""The page of dialects. In go the registered dialects and the lit tests of each (`tests/filecheck/dialects/NAME/`); out comes what every operation says of
itself, with the shortest example that these tests hold: so each example is parsed, verified and printed again by a test.

    python -m tests.dialect_reference > docs/dialects.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Dialect, Operation
from xdsl.irdl import IRDLOperation, OptionalDef, VariadicDef
from xdsl.parser import Parser

from distir.dialects.registry import DIALECTS, program_context

FOLDER = Path(__file__).parent / "filecheck" / "dialects"
GENERATED = {
    "aten": "the operators of PyTorch, from its own schemas: each has its overload's name and the schema's arguments (`dialects/aten/schemas.txt`)",
    "jax": "the primitives of JAX, each with its parameters (`dialects/jax/primitives.json`)",
    "onnx": "the operators of ONNX, from the onnx package's schemas: inputs and outputs are operands and results, attributes are properties (`dialects/onnx/schemas.json`)",
}
"""Dialects of operators that others define."""
LONGEST = 118
"""Of a line of an example that is shown whole."""


def dialects() -> dict[str, Dialect]:
    """Those of distir, without plug-ins'."""
    made = {name: DIALECTS.factory(name)() for name in sorted(DIALECTS)}
    return {name: each for name, each in made.items() if (FOLDER / name).is_dir() or name in GENERATED}


def programs(dialect: str) -> Iterator[tuple[Path, str]]:
    """The texts of a dialect's lit tests that are valid programs."""
    files = sorted([*(FOLDER / dialect).glob("*.mlir"), *FOLDER.glob(f"{dialect}_*.mlir")])
    for file in files:
        if "verification" not in file.name and "invalid" not in file.name:
            for text in file.read_text(encoding="utf-8").split("// -----"):
                yield file, text


def parsed(text: str) -> ModuleOp:
    """A program, verified."""
    module = Parser(program_context(), text).parse_module()
    module.verify()
    return module


def examples(dialect: str) -> dict[str, str]:
    """By operation, the shortest text that tests have of one."""
    found: dict[str, str] = {}
    for _, text in programs(dialect):
        for op in parsed(text).walk():
            if op.name.startswith(f"{dialect}.") and (op.name not in found or len(str(op)) < len(found[op.name])):
                found[op.name] = str(op)
    return found


def signature(op: type[Operation]) -> str:
    """Operands, properties, attributes and results, as the operation's definition has them."""
    assert issubclass(op, IRDLOperation)
    definition = op.get_irdl_definition()
    kinds = {"operands": definition.operands, "results": definition.results}
    kinds |= {"properties": list(definition.properties.items()), "attributes": list(definition.attributes.items())}
    parts: list[str] = []
    for kind, entries in kinds.items():
        names = [f"`{name}`{_many(each)}" for name, each in entries]
        if names:
            parts.append(f"{kind} {', '.join(names)}")
    return "; ".join(parts)


def _many(definition: object) -> str:
    return (
        " (optional)" if isinstance(definition, OptionalDef) else "..." if isinstance(definition, VariadicDef) else ""
    )


def _paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def reference() -> str:
    """The page."""
    parts = [
        "# Dialects",
        "Made from the dialects and their lit tests by `python -m tests.dialect_reference`; a test holds it to them. Every example is parsed, "
        "verified and printed again by a test. `name...` stands for any number of values. Level 1 programs are of operator dialects "
        "([architecture](architecture.md#the-levels)); `dist` says where values live and how they travel, `rank` what one process does.",
    ]
    for name, dialect in dialects().items():
        operations = sorted(dialect.operations, key=lambda op: op.name)
        parts.append(f"## `{name}`")
        if name in GENERATED:
            shown = sorted(examples(name).values(), key=len)[:1]
            parts.append(f"{len(operations):,} operations: {GENERATED[name]}. [Examples](operators.md).")
            parts += [f"```mlir\n{_folded(text)}\n```" for text in shown]
            continue
        parts.append(_paragraph(sys.modules[f"distir.dialects.{name}"].__doc__))
        for attribute in sorted(dialect.attributes, key=lambda a: a.name):
            parts.append(f"**`#{attribute.name}`** {_paragraph(attribute.__doc__)}")
        texts = examples(name)
        for op in operations:
            parts += [f"### `{op.name}`", _paragraph(op.__doc__)]
            if said := signature(op):
                parts.append(said[0].upper() + said[1:] + ".")
            parts.append(f"```mlir\n{_folded(texts[op.name])}\n```")
    return "\n\n".join(parts) + "\n"


def _folded(text: str) -> str:
    """Types of an operation on a line of their own where all on one is too long."""
    return "\n".join(
        re.sub(r" : (?=[(t])", "\n    : ", line, count=1) if len(line) > LONGEST else line for line in text.splitlines()
    )


if __name__ == "__main__":
    sys.stdout.write(reference())
