"""CPU seconds that `shardcombine-annotate` takes, cold (an empty cache) and warm (its file read), and how many
classes of operators it probed: they do not depend on depth.

    python benchmarks/annotate.py [--layers 1 2 12] [--training]

GPT-2 of ONNX at its published width, folded; with `--training`, the training step of a GPT-2 that PyTorch traces, at small
sizes (classes, and so the time, do not depend on width). For comparison: easydist's ShardCombine took 28 to 337 s for a GPT
training step of width 768 on two CPU cores, growing with depth.
"""

import argparse
import os
import runpy
import tempfile
import time
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.passes.shardcombine.cache import RuleCache
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine_annotate import is_operator

EXAMPLES = Path(__file__).parents[1] / "examples"


def gpt2(layers: int) -> ModuleOp:
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    module = import_model(build(n_layer=layers, d_model=768, n_head=12, vocab=50257, n_ctx=1024))
    OnnxFoldShapesPass(shape="input1=8,1,128").apply(Context(), module)
    return module


def gpt_training(layers: int) -> ModuleOp:
    from gpt_training import gpt_step

    return gpt_step(layers, width=96, heads=6, vocabulary=210, batch=8, sequence=32)


def annotate(module: ModuleOp) -> tuple[float, int, int]:
    """CPU seconds, operators, and classes probed, with the cache of the directory that is set."""
    start = time.process_time()
    discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
    operators = [op for op in module.walk() if is_operator(op)]
    for op in operators:
        discovery.rule(op)
    discovery.cache.save()
    return time.process_time() - start, len(operators), discovery.probed


def main() -> None:
    parser = argparse.ArgumentParser(description="how long annotation takes")
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 12])
    parser.add_argument("--training", action="store_true", help="the training step that PyTorch traces")
    options = parser.parse_args()
    print("GPT-2          operators  classes   cold s   warm s")
    for layers in options.layers:
        module = gpt_training(layers) if options.training else gpt2(layers)
        with tempfile.TemporaryDirectory() as directory:
            os.environ["DISTIR_CACHE_DIR"] = directory
            cold, operators, classes = annotate(module)
            warm, _, _ = annotate(module)
        print(f"{layers:3} layers     {operators:9}  {classes:7}  {cold:7.2f}  {warm:7.2f}")


if __name__ == "__main__":
    main()
