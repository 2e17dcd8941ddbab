"""CPU seconds that `shardcombine-annotate` takes on MetaDist's three workloads, cold (an empty cache) and warm (its file read), and
how many classes of operators it probes: they depend neither on depth nor on width.

    python -m benchmarks.annotate [--workloads gpt,wide-resnet,gat,gpt2-onnx] [--kinds inference,training]

Every operation of the graph is annotated: repeated layers are not outlined first. Each figure is of a process of its own in
which nothing was annotated before. For comparison, easydist's ShardCombine on two such cores: 78 s for the training
step of a GPT of width 768 and one layer, 337 s for 12; 147 s and 143 s for a wide ResNet-50 and a graph attention network.
Ours are in docs/figures.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import runpy
import tempfile
from collections.abc import Callable
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks.arguments import some_of
from benchmarks.gpt_training import gpt_step
from benchmarks.training_workloads import gat_step, wide_resnet_step
from distir.frontends.onnx import import_model
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.passes.shardcombine.cache import RuleCache
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine_annotate import is_operator

EXAMPLES = Path(__file__).parents[1] / "examples"


def gpt(layers: int, width: int, training: bool) -> ModuleOp:
    return gpt_step(layers, width, width // 64, vocabulary=50304, batch=8, sequence=128, training=training)


def wide_resnet(blocks: int, width: int, training: bool) -> ModuleOp:
    depth = (3, 4, 6, 3) if blocks == 16 else (blocks // 4,) * 4
    return wide_resnet_step(width, batch=16, blocks=depth, training=training)


def gat(layers: int, width: int, training: bool) -> ModuleOp:
    return gat_step(nodes=512, width=width, heads=4, layers=layers, training=training)


def gpt2_onnx(layers: int, width: int, training: bool) -> ModuleOp:
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    module = import_model(build(n_layer=layers, d_model=width, n_head=12, vocab=50257, n_ctx=1024))
    OnnxFoldShapesPass(shape="input1=8,1,128").apply(Context(), module)
    return module


Make = Callable[[int, int, bool], ModuleOp]

KINDS = ("inference", "training")

WORKLOADS: dict[str, tuple[Make, tuple[tuple[int, int], ...]]] = {
    "gpt": (gpt, ((2, 768), (12, 768), (12, 1536))),
    "wide-resnet": (wide_resnet, ((4, 64), (16, 64), (16, 320))),
    "gat": (gat, ((1, 1024), (2, 1024), (2, 24576))),
    "gpt2-onnx": (gpt2_onnx, ((2, 768), (12, 768), (12, 1536))),
}
"""How a workload is made, and its depths and widths."""


def annotate(module: ModuleOp) -> tuple[float, int, int]:
    """CPU seconds, operators, and classes probed, with the cache of the directory that is set."""
    start = _cpu_seconds()
    discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
    operators = [op for op in module.walk() if is_operator(op)]
    discovery.rules(operators)
    discovery.cache.save()
    return _cpu_seconds() - start, len(operators), discovery.probed


def _cpu_seconds() -> float:
    """Of this process and of those that it started."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def in_own_process(module: ModuleOp) -> tuple[float, int, int]:
    """`annotate` in a copy of this process, which stays as it is."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, json.dumps(annotate(module)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        found = json.load(stream)
    os.waitpid(child, 0)
    return tuple(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="how long annotation takes")
    parser.add_argument("--workloads", type=some_of(WORKLOADS), default=[*WORKLOADS])
    parser.add_argument("--kinds", type=some_of(KINDS), default=[*KINDS])
    options = parser.parse_args()
    print("workload     graph       depth  width  operators  classes   cold s   warm s")
    for name in options.workloads:
        make, sizes = WORKLOADS[name]
        for kind in options.kinds:
            if name == "gpt2-onnx" and kind == "training":
                continue
            for depth, width in sizes:
                module = make(depth, width, kind == "training")
                with tempfile.TemporaryDirectory() as directory:
                    os.environ["DISTIR_CACHE_DIR"] = directory
                    cold, operators, classes = in_own_process(module)
                    warm, _, _ = in_own_process(module)
                print(
                    f"{name:12} {kind:10} {depth:6} {width:6}  {operators:9}  {classes:7}  {cold:7.2f}  {warm:7.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
