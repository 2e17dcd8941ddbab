"""Every operation of `aten`, `jax` and `onnx` is on the page of operators, and every call there is a program."""

import re
from pathlib import Path

import pytest

from tests.operator_reference import SOURCES, in_function, operations

PAGE = (Path(__file__).parents[3] / "docs" / "operators.md").read_text("utf-8")


@pytest.mark.parametrize("dialect", SOURCES)
def test_the_page_has_every_operation(dialect: str):
    """If this fails: `python -m tests.operator_reference > docs/operators.md`."""
    section = PAGE.split(f"## `{dialect}`\n")[1].split("\n## ")[0]
    block, rest = section.split("```mlir\n")[1].split("\n```")
    shown = re.split(r"\n(?=[%\"])", block)
    names = set[str]()
    for text in shown:
        module = in_function(text)
        assert text in "\n".join(line.removeprefix("    ") for line in str(module).splitlines())
        names |= {op.name for op in module.walk() if op.name.startswith(f"{dialect}.")}
    assert len(names) >= len(shown)
    assert names | {f"{dialect}.{name}" for name in re.findall(r"`([^`]+)`", rest)} == operations(dialect)
