"""`distir-opt` imports what it needs, when it needs it. How fast it starts: `benchmarks/startup.py`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PASS = "check-module"
PROGRAM = """
func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>> {
  %0 = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return %0 : tensor<4xf32, #dist.on<1>>
}
"""
HEAVY = {"numpy", "onnx", "torch", "networkx", "pulp", "sympy", "matplotlib"}


def test_driver_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "distir.tools.distir_opt", "-p", PASS],
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "xdsl" in imported
    assert not imported & HEAVY
