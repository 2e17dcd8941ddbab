"""`distir-opt` answers at once: the drivers import what they need, when they need it."""

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
CPU_LIMIT_SECONDS = 0.4


def run_driver(*python_flags: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """The finished process and the CPU seconds that it took."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, *python_flags, "-m", "distir.tools.distir_opt", "-p", PASS],
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    after = os.times()
    return done, after.children_user + after.children_system - before.children_user - before.children_system


def test_driver_imports_nothing_heavy():
    done, _ = run_driver("-X", "importtime")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "xdsl" in imported
    assert not imported & HEAVY


def test_driver_starts_fast():
    assert min(run_driver()[1] for _ in range(3)) < CPU_LIMIT_SECONDS
