"""The main job from end to end, as a user would type it (`make demo`).

A GPT-2 of 12 layers as an ONNX file with dynamic shapes; every way to spread it over the 16 GPUs of a DGX-2 that nobody
has to own, simulated and ranked; the best plan as one explicit program. Then a small GPT-2: distributed by the same
transform, proved equal to the sequential model, and run on four local processes.
"""

import shlex
import subprocess
import sys
from pathlib import Path

OUT = Path("out")


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)


def type_command(command: str) -> None:
    """Prints a command and runs it; the demo ends with its status if it fails."""
    print(f"$ {command}", flush=True)
    status = subprocess.run(shlex.split(command)).returncode
    if status:
        sys.exit(status)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    python = shlex.quote(sys.executable)

    say("GPT-2 (12 layers, 124M parameters, random weights) as an ONNX file with dynamic batch and sequence")
    type_command(f"{python} examples/gpt2_onnx.py out/gpt2.onnx")
    say("import it: a level 1 program, its weights beside it")
    type_command("distir import out/gpt2.onnx -o out/gpt2.mlir")
    say("search: all D x T x P = 16 plans, 2 to 128 microbatches, on a DGX-2")
    type_command(
        "distir search out/gpt2.mlir --shape input1=256,1,128 --machine dgx-2 --devices 16 "
        "--csv out/plans.csv -o out/best.mlir"
    )
    say("the best plan is a program: what was simulated is what runs")
    type_command("distir simulate out/best.mlir --machine dgx-2 --trace out/best.trace.json")

    say(
        "a small GPT-2, distributed with data, tensor and pipeline parallelism in 2 microbatches, is equal to the model"
    )
    small = "--n-layer 4 --d-model 96 --n-head 6 --vocab 512 --n-ctx 64"
    type_command(f"{python} examples/gpt2_onnx.py out/small.onnx {small}")
    type_command("distir import out/small.onnx --shape input1=8,1,16 -o out/small.mlir")
    type_command("distir-opt out/small.mlir -p 'dtp-parallelize{dp=2 tp=2 pp=2 microbatches=2}' -o out/small_8.mlir")
    type_command("distir verify out/small.mlir out/small_8.mlir")
    say("and it runs: two replicas of two tensor-parallel ranks on four local processes")
    type_command("distir-opt out/small.mlir -p 'dtp-parallelize{dp=2 tp=2}' -o out/small_4.mlir")
    type_command("distir run out/small_4.mlir --check out/small.mlir --measure 5")


if __name__ == "__main__":
    main()
