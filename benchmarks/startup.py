"""Start-up of `distir-opt` with a pass, beside stock `xdsl-opt` with one, in CPU seconds of one run each in turn.

    python benchmarks/startup.py

The target is 0.4 s on a quiet machine; the ratio to stock xDSL is what this project answers for."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAIN = "func.func @main() {\n  func.return\n}\n"
PLACED = """func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>> {
  %0 = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return %0 : tensor<4xf32, #dist.on<1>>
}
"""
ROUNDS = 5


def cpu_seconds(program: str, *command: str) -> float:
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", *command],
        input=program.encode(),
        stdout=subprocess.DEVNULL,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    cases = {
        "xdsl-opt -p cse": (PLAIN, "xdsl.tools.xdsl_opt", "-p", "cse"),
        "distir-opt -p cse": (PLAIN, "distir.tools.distir_opt", "-p", "cse"),
        "distir-opt -p check-module, placed program": (PLACED, "distir.tools.distir_opt", "-p", "check-module"),
    }
    rounds = [{name: cpu_seconds(*case) for name, case in cases.items()} for _ in range(ROUNDS)]
    best = {name: min(times[name] for times in rounds) for name in cases}
    baseline = best["xdsl-opt -p cse"]
    for name, seconds in best.items():
        print(f"{name:45} {seconds:.2f} CPU s  {seconds / baseline:.2f}x")


if __name__ == "__main__":
    main()
