"""Damaged files, texts and command lines, from `benchmarks/fuzz.py`: accepted or a clear error, in time and memory."""

import runpy
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.utils.exceptions import ParseError

from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.frontends.text import parse_program

FUZZ = str(Path(__file__).parents[3] / "benchmarks" / "fuzz.py")


def check(first: int, count: int) -> None:
    """In a process of its own, where memory is limited."""
    import subprocess
    import sys

    script = [sys.executable, FUZZ, "--first", str(first), "--cases", str(count)]
    finished = subprocess.run(script, capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert " 0 failed" in finished.stdout, finished.stdout + finished.stderr
    assert finished.returncode == 0


def test_200_damaged_inputs() -> None:
    check(0, 200)


@pytest.mark.long
def test_3300_more_damaged_inputs() -> None:
    check(200, 3300)


def test_same_seed_same_damage() -> None:
    fuzz = runpy.run_path(FUZZ)
    import random

    data = bytes(range(200))
    assert fuzz["damaged"](data, random.Random(7)) == fuzz["damaged"](data, random.Random(7)) != data
    text = "func.func @main() { func.return }"
    assert fuzz["mutated"](text, random.Random(7)) == fuzz["mutated"](text, random.Random(7)) != text


def parse(text: str) -> None:
    context = Context(allow_unregistered=True)
    for dialect in (Builtin, Onnx):
        context.load_dialect(dialect)
    parse_program(context, text, "program.mlir")


def test_open_string_is_refused_in_time() -> None:
    """xDSL's own pattern would try 2^60 ways to split it."""
    with pytest.raises(ParseError, match="before closing string literal"):
        parse('"test.op"() {name = "' + "a" * 60 + "\n} : () -> ()")


def test_what_the_parser_has_no_diagnostic_for_is_named() -> None:
    with pytest.raises(DistirError, match=r"program.mlir: not a program: its text is nested too deeply"):
        parse('"test.op"() {a = ' + "[" * 20_000 + "} : () -> ()")
    with pytest.raises(ParseError, match="no ONNX element type i644"):
        parse("%0 = onnx.Constant dense<1> : tensor<2xi644>")
