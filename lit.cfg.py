"""lit configuration: `lit tests/filecheck` or one file of it, from anywhere in the checkout."""

import os
import sys

import lit.formats

ROOT = os.path.dirname(os.path.abspath(__file__))

config.name = "distir"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir"]
config.excludes = ["Inputs"]
# Must be the folder of this file: lit appends the path relative to it.
config.test_source_root = ROOT
config.test_exec_root = os.path.join(ROOT, "build", "lit")

# Test this checkout whether or not (another copy of) distir is installed.
config.environment["PYTHONPATH"] = os.path.join(ROOT, ".ns")
config.environment["OMP_NUM_THREADS"] = "1"


def tool(name: str, module: str) -> tuple[str, str]:
    """Run `name` as `python -m module`; never rewrite it inside a path."""
    return rf"(?<![\w/.-]){name}(?![\w/.-])", f'"{sys.executable}" -m {module}'


config.substitutions += [
    (
        "DISTIR_ROUNDTRIP",
        "distir-opt %s --split-input-file --print-op-generic | distir-opt --split-input-file | filecheck %s",
    ),
    (
        "DISTIR_DIAGNOSTICS",
        "distir-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s",
    ),
    tool("distir-opt", "distir.tools.distir_opt"),
    tool("distir", "distir.tools.distir"),
    tool("filecheck", "filecheck"),
]
