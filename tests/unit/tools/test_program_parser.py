"""`ProgramParser` reads any text as xDSL's parser does: the same program, or the same error at the same place."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.parser import Parser

from distir.dialects.registry import program_context
from distir.frontends.program_parser import ProgramParser
from distir.frontends.text import bound_lexer

FILES = Path(__file__).parents[2] / "filecheck"

PHRASES = """\
!pair = tensor<2xf32>
func.func @main(%x: tensor<2x?xf32> {dist.name = "x"}, %y: !pair) -> tensor<2x?xf32> {
  %c = onnx.Constant dense<1> : tensor<i64>
  %d = onnx.Constant dense<1> : tensor<i64>
  %e = onnx.Constant dense<[1.5, -2.0]> : tensor<2xf32> loc("somewhere")
  %f = onnx.Constant dense<[1.5, -2.0]> : tensor<2xf32>
  %0 = "test.op"(%x) <{axis = 3 : si64, perm = [0 : i64]}> {name = "a"} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %1 = "test.op"(%0) <{axis = 3 : si64, perm = [0 : i64]}> {name = "b"} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %2 = "test.op"(%1) <{axis = 3 : si64, perm = [0 : i64]}> {name = "c\\22"} : (tensor<2x?xf32>) -> tensor<2x?xf32> loc("u")
  %3 = "test.op"(%2) <{axis = 3 : si64, perm = [0 : i64]}> {name = "d"} : (tensor<2x?xf32>) -> tensor<2x?xf32>
    // a comment
    loc("next line")
  %4, %5 = "test.two"(%3, %1) {a = "1", b = "2"} : (tensor<2x?xf32>, tensor<2x?xf32>) -> (tensor<2x?xf32>, none)
  %6, %7 = "test.two"(%4, %5) {a = "1", b = "2"} : (tensor<2x?xf32>, none) -> (tensor<2x?xf32>, none)
  %8, %9 = "test.two"(%4, %7) {a = "1", b = "2"} : (tensor<2x?xf32>, none) -> (tensor<2x?xf32>, none)
  %10:2 = "test.two"(%x, %9) {a = 1 : i64} : (tensor<2x?xf32>, none) -> (tensor<2x?xf32>, none)
  %11 = "onnx.Flatten"(%10#0) {axis = 1 : si64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  %12 = "onnx.Flatten"(%11) {axis = 1 : si64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
  "test.none"() : () -> ()
  "test.none"() : () -> ()
  func.return %12 : tensor<2x?xf32>
}
"""

TEXTS = [PHRASES, *(path.read_text() for path in sorted(FILES.rglob("*.mlir")) if path.stat().st_size < 6000)]

PIECES = (
    "(",
    ")",
    "<",
    ">",
    "{",
    "}",
    ":",
    ",",
    '"',
    "\\",
    "%0",
    "%1",
    "#0",
    " ",
    "\n",
    "//",
    "loc",
    "->",
    "x",
    "?",
    "1",
    "é",
)


def outcome(parser: type[Parser], text: str) -> Any:
    """What is read, or the error; then whether it is verified."""
    context = program_context(allow_unregistered=True)
    try:
        module = parser(context, text, "program.mlir").parse_module()
    except Exception as error:
        return type(error), str(error)
    places = [str(op.location) for op in module.walk()]
    hints = [[result.name_hint for result in op.results] for op in module.walk()]
    held = [(list(op.properties.items()), list(op.attributes.items())) for op in module.walk()]
    return str(module), places, hints, held, is_valid(context, parser, text)


def is_valid(context: Context, parser: type[Parser], text: str) -> bool:
    reader = parser(context, text, "program.mlir")
    try:
        if isinstance(reader, ProgramParser):
            reader.parse_verified()
        else:
            reader.parse_module().verify()
    except Exception:
        return False
    return True


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A program with lines moved or repeated and pieces of text put in or cut out."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(0, 3))):
        lines = text.splitlines(keepends=True)
        here, there = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        place = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(("repeat", "swap", "insert", "cut"))):
            case "repeat":
                lines.insert(there, lines[here])
                text = "".join(lines)
            case "swap":
                lines[here], lines[there] = lines[there], lines[here]
                text = "".join(lines)
            case "insert":
                text = text[:place] + draw(st.sampled_from(PIECES)) + text[place:]
            case _:
                text = text[:place] + text[place + draw(st.integers(1, 4)) :]
    return text or " "


@settings(max_examples=100)
@given(damaged())
def test_any_text_is_read_as_by_xdsl(text: str) -> None:
    bound_lexer()
    assert outcome(ProgramParser, text) == outcome(Parser, text)


@pytest.mark.parametrize("text", TEXTS)
def test_programs_are_read_as_by_xdsl(text: str) -> None:
    bound_lexer()
    for part in text.split("// -----\n"):
        assert outcome(ProgramParser, part) == outcome(Parser, part)


def test_equal_phrases_are_one_object() -> None:
    context = program_context(allow_unregistered=True)
    module = ProgramParser(context, PHRASES).parse_module()
    first, second = [op for op in module.walk() if op.name == "onnx.Constant"][:2]
    assert first is not second
    assert first.properties["value"] is second.properties["value"]
    first, second = [op for op in module.walk() if op.name == "onnx.Flatten"]
    assert first.properties["axis"] is second.properties["axis"]
    assert first.results[0].type is second.results[0].type


def test_the_first_of_equal_operations_is_verified() -> None:
    line = '  %{} = "onnx.Flatten"(%x) <{{axis = {} : si64}}> {{name = "{}"}} : (tensor<2x3xf32>) -> tensor<2x3xf{}>\n'
    right = [line.format(i, 1, i, 32) for i in range(3)]
    for wrong in (
        line.format(9, "1.0", 9, 32).replace("si64", "f32"),
        line.format(9, 1, 9, 32).replace("axis", "axes"),
    ):
        text = f"func.func @main(%x: tensor<2x3xf32>) {{\n{''.join(right)}{wrong}  func.return\n}}\n"
        assert outcome(Parser, text) == outcome(ProgramParser, text)
        assert outcome(ProgramParser, text)[-1] is False
        twice = text.replace(wrong, wrong + wrong.replace("%9", "%10"))
        assert outcome(Parser, twice) == outcome(ProgramParser, twice)
