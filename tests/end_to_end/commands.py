"""Tests of commands share how these are called, in this process and in one of their own, and two programs of the paper."""

import os
import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from onnx import ModelProto

from distir.tools.distir import main

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "tests" / "filecheck" / "paper"
SEQUENTIAL, PIPELINE = str(PAPER / "figure_sequential.mlir"), str(PAPER / "figure2.mlir")
COMMAND = [sys.executable, "-m", "distir.tools.distir"]


def example(name: str) -> Callable[..., ModelProto]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["build"]


def run(*arguments: str) -> int:
    return main(arguments)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / ".ns")}


def parents_of_all() -> dict[int, int]:
    """The parent of each process, by Linux's /proc."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return parents


def ranks_of(launcher: int) -> dict[int, tuple[int, Path]]:
    """Process number and folder of each rank that a launcher has started: its children's children, which print to `FOLDER/RANK.log` or
    `.out`."""
    parents = parents_of_all()
    found: dict[int, tuple[int, Path]] = {}
    for process, parent in parents.items():
        if parents.get(parent) == launcher:
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                printed = Path(f"/proc/{process}/fd/1").readlink()
                if printed.stem.isdecimal():
                    found[int(printed.stem)] = process, printed.parent
    return found


def unary(operator: str, type_: str) -> str:
    """The text of a program of one operator."""
    return (
        f'func.func @main(%x: tensor<{type_}> {{dist.name = "x", dist.role = "input"}})\n'
        f'    -> (tensor<{type_}> {{dist.name = "y", dist.role = "output"}}) {{\n'
        f'  %y = "onnx.{operator}"(%x) : (tensor<{type_}>) -> tensor<{type_}>\n'
        f"  func.return %y : tensor<{type_}>\n}}\n"
    )
