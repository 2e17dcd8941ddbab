"""The lit configuration of distir, for its own tests and those of packages that extend it. In goes lit's `config` with the folder of the
tests; out comes the same with tests that run `distir-opt`, `distir` and `filecheck` of this Python.

    # lit.cfg.py
    from distir.tools.lit_configuration import configure
    configure(config, __file__)

Substitutions: `DISTIR_ROUNDTRIP` prints in generic form, parses that, and checks the custom form; `DISTIR_DIAGNOSTICS` checks the
messages of errors, with what is in the text in `expected-error` comments; the three tools run as `python -m`. A test that says
`// REQUIRES: jax` (torch, onnx) runs where that library is installed."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROUNDTRIP = "distir-opt %s --split-input-file --print-op-generic | distir-opt --split-input-file | filecheck %s"
DIAGNOSTICS = "distir-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s"
TOOLS = {"distir-opt": "distir.tools.distir_opt", "distir": "distir.tools.distir", "filecheck": "filecheck"}
LIBRARIES = ("jax", "onnx", "torch")


def configure(config: Any, file: str, output: str = "build/lit", run: str | None = None) -> None:
    """Sets up lit for the `.mlir` files in the folder of `file`, lit's configuration; what tests write is below `output` there, and `run` how
    the module of a tool is run: as `python -m` unless stated."""
    import lit.formats  # pyright: ignore

    root, python = Path(file).resolve().parent, f'"{sys.executable}" -m'
    config.name = root.name
    config.test_format = lit.formats.ShTest()  # pyright: ignore
    config.suffixes = [".mlir"]
    config.excludes = ["Inputs"]
    config.test_source_root = str(root)  # lit appends a test's path relative to it
    config.test_exec_root = str(root / output)
    package = str(Path(__file__).absolute().parents[2])  # this distir, whether or not another is installed
    config.available_features.update(library for library in LIBRARIES if find_spec(library))
    config.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    config.environment["OMP_NUM_THREADS"] = "1"
    config.substitutions += [
        ("DISTIR_ROUNDTRIP", ROUNDTRIP),
        ("DISTIR_DIAGNOSTICS", DIAGNOSTICS),
    ]
    for name, module in TOOLS.items():  # never rewritten inside a path
        config.substitutions.append((rf"(?<![\w/.-]){name}(?![\w/.-])", f"{run or python} {module}"))
