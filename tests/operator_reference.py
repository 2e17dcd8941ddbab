"""The page of operators that others define. In go calls of each: torch's samples, the onnx package's node tests, draws for JAX's primitives; out comes the shortest
call of every operator, which parses, verifies and prints as itself, and the names of those that none of these call.

    python -m tests.operator_reference > docs/operators.md

It takes minutes, so the test holds the page to the dialects and parses what stands there."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region
from xdsl.parser import Parser

from distir.dialects.registry import DIALECTS, program_context

LONGEST = 400
"""Characters of a call that is shown."""
SOURCES = {
    "aten": "PyTorch's operators, by torch's own samples for its tests, their gradients among them, others on zeros",
    "jax": "JAX's primitives, at drawn shapes",
    "onnx": "ONNX's operators, by the node tests of the onnx package",
}


def operations(dialect: str) -> set[str]:
    return {op.name for op in DIALECTS.factory(dialect)().operations}


def alone(op: Operation) -> str | None:
    """The operation on arguments `%0`, `%1`, ..., as text; nothing if it cannot stand alone."""
    block = Block(arg_types=[operand.type for operand in op.operands])
    copy = op.clone(dict(zip(op.operands, block.args, strict=True)))
    copy.operands = block.args
    copy.attributes.clear()
    for result in copy.results:
        result.name_hint = None
    block.add_ops([copy, ReturnOp()])
    module = ModuleOp([FuncOp("example", ([a.type for a in block.args], []), Region(block))])
    return text_of(module)


def text_of(module: ModuleOp) -> str | None:
    lines = str(module).splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines[2:-3])
    try:
        again = in_function(text)
        return text if len(text) <= LONGEST and str(again) == str(module) else None
    except Exception:
        return None


def in_function(text: str) -> ModuleOp:
    """The program of a call, verified."""
    given = re.search(r"\"[\w.]+\"\(([^)]*)\)", text)
    names = [name for name in given[1].split(", ") if name] if given is not None else []
    types = _types(text[text.rindex(" : (") + 4 :])
    arguments = ", ".join(f"{name}: {type_}" for name, type_ in zip(names, types, strict=True))
    module = Parser(program_context(), f"func.func @example({arguments}) {{\n{text}\nfunc.return\n}}").parse_module()
    module.verify()
    return module


def _types(text: str) -> list[str]:
    """Those up to the parenthesis that ends the list."""
    parts, depth, current = list[str](), 0, ""
    for i, character in enumerate(text):
        depth += character in "(<["
        depth -= character in ")>]" and text[i - 1] != "-"
        if depth < 0:
            break
        if character == "," and not depth:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()] if current.strip() else parts


def calls(dialect: str) -> Iterator[Operation]:
    """Operations of these and of other dialects, in any order."""
    if dialect == "aten":
        from tests.unit.aten_instances import operation, recorded

        for call in recorded(2, 3, 1.0):
            try:
                yield operation(call)[0]
            except Exception:
                continue
    elif dialect == "onnx":
        from distir.frontends.onnx import import_model
        from tests.unit.node_rules import single_operator_tests

        for case in single_operator_tests():
            try:
                yield from import_model(case.model).walk()
            except Exception:
                continue
    else:
        import jax

        from distir.frontends.jax import import_step
        from tests.unit.jax_instances import drawn_calls

        floats, integers = np.full((2, 3), 0.5, np.float32), np.full((2, 3), 2, np.int32)
        plain = [
            (function, (array,) * count)
            for name in operations("jax")
            if (function := getattr(jax.lax, name.removeprefix("jax."), None)) is not None
            for array in (floats, integers)
            for count in (1, 2, 3)
        ]
        for function, arrays in [*drawn_calls(), *plain]:
            try:
                yield from import_step(function, tuple(arrays)).walk()
            except Exception:
                continue


def drawn_examples(names: set[str]) -> dict[str, str]:
    """A call on drawn operands of each of these operators of ATen that takes any. Some crash: each is called in a fork."""
    from distir.dialects.aten import OPERATORS
    from distir.interpreters.isolation import answers
    from tests.unit.aten_instances import drawn, operation

    def first(name: str) -> str:
        for call in drawn(OPERATORS[name].schema):
            try:
                if (text := alone(operation(call)[0])) is not None:
                    return text
            except Exception:
                continue
        return ""

    known = sorted(names & OPERATORS.keys())
    found = zip(known, answers([partial(first, name) for name in known]), strict=True)
    return {name: text for name, text in found if isinstance(text, str) and text}


def examples(dialect: str) -> dict[str, str]:
    """By operation, the shortest call that there is of one."""
    found: dict[str, str] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for op in calls(dialect):
            if op.dialect_name() == dialect and (text := alone(op)) is not None:
                if op.name not in found or len(text) < len(found[op.name]):
                    found[op.name] = text
        if dialect == "aten":
            found |= drawn_examples(operations(dialect) - found.keys())
    return found


def page() -> str:
    """The page."""
    parts = [
        "# Operators",
        "Made from calls of the operators by `python -m tests.operator_reference`. Every call is parsed, verified and printed again by a test. "
        "Operands are arguments.",
    ]
    for dialect, source in SOURCES.items():
        known, found = operations(dialect), examples(dialect)
        none = sorted(name.removeprefix(f"{dialect}.") for name in known - found.keys())
        parts.append(f"## `{dialect}`")
        parts.append(f"{source}: {len(found):,} of {len(known):,} operations.")
        parts.append("```mlir\n" + "\n".join(text for _, text in sorted(found.items())) + "\n```")
        parts.append(f"These have no example: {', '.join(f'`{name}`' for name in none)}.")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        text = page()
    sys.stdout.write(text)
