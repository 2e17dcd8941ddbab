"""How long `ilp-shard` takes and how good its plans are, against hand-made strategies and beam search on the same machine file.

    python -m benchmarks.ilp [--workloads gpt,gat,wide-resnet] [--layers 4] [--machine dgx-2] [--meshes 2,4,8,2x4] [--depths 12,96]
                             [--untied 2] [--llama 32] [--tight .95,.9]

The workloads are training steps: a GPT (`gpt_training`), and a graph attention network and a wide ResNet-50 of the sizes that
MetaDist's tables have for 4 devices (`training_workloads`); `gpt-large` is the GPT with so wide layers that a device of 32 GB
cannot hold it whole. Plans are searched within the memory of the machine's devices; one that needs more is marked. `--llama`
solves a training step of a decoder like Llama 3 8B (Grattafiori et al., 2024, table 3; 64 sequences of 4096 tokens) on 8 x 8
devices. `--tight` solves
within limits that the fastest plan exceeds. `--untied` compares the optimum of a GPT whose repeated layers are
one function with that of the same GPT whose layers may all differ. All strategies are plans over the same rules and prices, lowered to
explicit programs and simulated on one stream: pure data parallelism (parameters whole, the batch cut by every axis), ZeRO-3
(parameters cut by every axis, gathered at each use; Rajbhandari et al., 2020) and Megatron (every contraction that can be is
cut by the last axis, and the batch by the others; Shoeybi et al., 2019), each with its conversions chosen optimally."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.dialects.sharding import Sharded, UseFactor
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.space import model_values
from distir.passes.dtp_parallelize import prepare
from distir.passes.kernels.domains import is_contraction
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.passes.sharding.beam import Beam
from distir.passes.sharding.prices import Prices
from distir.passes.sharding.problem import JointOption, Problem, build
from distir.passes.sharding.result import Result
from distir.passes.sharding.search import best_plan
from distir.passes.sharding.settings import memory_limit, write
from distir.passes.structure import functions

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.arguments import some_of
from benchmarks.gpt_training import gpt_step
from benchmarks.training_workloads import gat_step, llama_step, wide_resnet_step

WIDTH, HEADS, VOCABULARY, BATCH, SEQUENCE = 768, 12, 50304, 16, 512


def problem_of(module: ModuleOp, mesh: Mesh, machine: str, restrictions: Mapping[str, str] | None = None) -> Problem:
    prices = Prices(mesh, load_machine(machine))
    return build(module.clone(), "main", prices, parse_batch("", entry_function(module)), restrictions)


def _cut_by_all(option: JointOption) -> bool:
    return all(isinstance(o.choice, UseFactor) for o in option.options)


def data_parallel(module: ModuleOp, mesh: Mesh, machine: str) -> Problem:
    """Every operation that can be is cut along the batch by every axis; parameters are whole."""
    problem = problem_of(module, mesh, machine, {axis: "batch" for axis, _ in mesh.axes})
    for op, found in problem.options.items():
        problem.options[op] = [option for option in found if _cut_by_all(option)] or found
    for argument in model_values(problem.functions, problem.entry, functions(problem.module)):
        problem.arguments[argument] = [problem.prices.whole]  # type: ignore[index]
    return problem


def zero_3(module: ModuleOp, mesh: Mesh, machine: str) -> Problem:
    """Data parallelism whose parameters arrive cut as often as they divide."""
    problem = problem_of(module, mesh, machine, {axis: "batch" for axis, _ in mesh.axes})
    for op, found in problem.options.items():
        problem.options[op] = [option for option in found if _cut_by_all(option)] or found
    for argument in model_values(problem.functions, problem.entry, functions(problem.module)):
        states = problem.arguments[argument]  # type: ignore[index]
        most = max(sum(isinstance(s, Sharded) for s in state) for state in states)
        problem.arguments[argument] = [s for s in states if sum(isinstance(x, Sharded) for x in s) == most]  # type: ignore[index]
    return problem


def megatron(module: ModuleOp, mesh: Mesh, machine: str) -> Problem:
    """The last axis cuts contractions along parameters' dims, the others the batch."""
    *outer, (inner, _) = mesh.axes
    problem = problem_of(module, mesh, machine, {inner: "model", **{axis: "batch" for axis, _ in outer}})
    for op, found in problem.options.items():
        if is_contraction(op):
            cut = [o for o in found if isinstance(o.options[-1].choice, UseFactor)] or found
            problem.options[op] = [o for o in cut if all(isinstance(x.choice, UseFactor) for x in o.options)] or cut
    return problem


def simulated(problem: Problem, result: Result, machine: str) -> tuple[float, int]:
    """Step time in seconds and peak memory of the plan's explicit program."""
    write(problem, result)
    ApplyShardingPass().apply(Context(), problem.module)
    simulation = simulate(problem.module, machine)
    return simulation.makespan_seconds, max(simulation.peak_memory_bytes.values())


def fitting(problem: Problem) -> Result:
    """The optimum within the memory of the machine's devices."""
    return best_plan(problem, memory_limit("", problem))


def compare(module: ModuleOp, mesh: Mesh, machine: str, width: int, workload: str) -> None:
    shape = "x".join(str(size) for size in mesh.sizes)
    best = 0.0

    def beam(problem: Problem) -> Result:
        return Beam(problem, width).search()

    rows: list[tuple[str, Callable[[], Problem], Callable[[Problem], Result]]] = [
        ("ilp-shard", lambda: problem_of(module, mesh, machine), fitting),
        *([(f"beam-shard, width {width}", lambda: problem_of(module, mesh, machine), beam)] if width else []),
        *([("Megatron", lambda: megatron(module, mesh, machine), best_plan)] if workload.startswith("gpt") else []),
        ("data parallel", lambda: data_parallel(module, mesh, machine), best_plan),
        ("ZeRO-3", lambda: zero_3(module, mesh, machine), best_plan),
    ]
    for name, pose, search in rows:
        start = time.process_time()
        try:
            problem = pose()
            result = search(problem)
        except DistirError as error:
            print(f"{workload} {shape:>6}  {name:24} {str(error)[:80]}")
            continue
        spent = time.process_time() - start
        seconds, peak = simulated(problem, result, machine)
        best = best or seconds
        fits = peak <= memory_limit("", problem)
        gap = (f"gap {result.gap:.0%}" if name == "ilp-shard" else "") + ("" if fits else "does not fit")
        print(
            f"{workload} {shape:>6}  {name:24} step {seconds * 1e3:9.3f} ms ({seconds / best:5.2f}x)  peak {peak / 1e9:6.2f} GB  "
            f"search {spent:6.1f} s CPU  {gap}",
            flush=True,
        )


def tight(module: ModuleOp, mesh: Mesh, machine: str, shares: list[float], workload: str) -> None:
    """The fastest plan within shares of the memory that the fastest one of all needs; CPU seconds of posing and solving."""
    shape = "x".join(str(size) for size in mesh.sizes)
    free = fitting(problem_of(module, mesh, machine))
    whole = best_plan(data_parallel(module, mesh, machine)).memory.peak_bytes
    for share in shares:
        limit = int(share * free.memory.peak_bytes)
        start = time.process_time()
        problem = problem_of(module, mesh, machine)
        try:
            result = best_plan(problem, limit)
        except DistirError as error:
            print(
                f"{workload} {shape:>6}  {str(error)[:100]}, search {time.process_time() - start:6.1f} s CPU",
                flush=True,
            )
            continue
        spent = time.process_time() - start
        seconds, peak = simulated(problem, result, machine)
        print(
            f"{workload} {shape:>6}  within {limit / 1e9:5.2f} GB (data parallel needs {whole / 1e9:5.2f})  "
            f"step {seconds * 1e3:9.3f} ms ({seconds / free.seconds:5.2f}x)  peak {peak / 1e9:6.2f} GB  "
            f"search {spent:6.1f} s CPU  gap {result.gap:.2%}",
            flush=True,
        )


WORKLOADS: dict[str, Callable[[int], ModuleOp]] = {
    "gpt": lambda layers: gpt_step(layers, WIDTH, HEADS, VOCABULARY, BATCH, SEQUENCE),
    "gpt-large": lambda layers: gpt_step(layers, 8192, 64, VOCABULARY, BATCH, SEQUENCE),
    "gat": lambda _: gat_step(nodes=1024, width=24576, heads=4),
    "wide-resnet": lambda _: wide_resnet_step(width=320, batch=128),
}
"""How a training step is made; the first two of a number of layers."""


def training(layers: int, workload: str = "gpt") -> ModuleOp:
    module = WORKLOADS[workload](layers)
    prepare(Context(), module)
    return module


def untied(layers: int, machine: str) -> None:
    """The optimum on 4 devices with repeated layers as one function, and with every layer free."""
    flat = gpt_step(layers, WIDTH, HEADS, VOCABULARY, BATCH, SEQUENCE)
    OnnxFoldShapesPass().apply(Context(), flat)  # as before outlining: what is constant costs no kernel
    ShardcombineAnnotatePass().apply(Context(), flat)
    for name, module in (("tied", training(layers)), ("untied", flat)):
        start = time.process_time()
        result = best_plan(problem_of(module, mesh_of("4"), machine))
        spent = time.process_time() - start
        print(
            f"{layers} layers, {name}: step {result.seconds * 1e3:.3f} ms, gap {result.gap:.0%}, {spent:.1f} s CPU",
            flush=True,
        )


def mesh_of(text: str) -> Mesh:
    """`4` is one axis, `2x4` are two."""
    sizes = [int(size) for size in text.split("x")]
    return Mesh(tuple(zip(("dp", "tp")[-len(sizes) :], sizes, strict=True)), uneven=True)


def depth(layers: int, machine: str) -> float:
    """CPU seconds that posing and solving take on 4 devices: the least of three times, since they are short."""
    module = training(layers)

    def once() -> tuple[float, Result]:
        start = time.process_time()
        result = best_plan(problem_of(module, mesh_of("4"), machine))
        return time.process_time() - start, result

    spent, result = min((once() for _ in range(3)), key=lambda each: each[0])
    print(f"{layers:3} layers: {spent:.2f} s CPU, gap {result.gap:.0%}, step {result.seconds * 1e3:.3f} ms", flush=True)
    return spent


def llama(layers: int, machine: str = "dgx-a100") -> None:
    """CPU seconds that posing and solving take on 8 x 8 devices, jointly and without restrictions."""
    module = llama_step(layers, 4096, 32, 8, 14336, 128256, batch=64, sequence=4096)
    prepare(Context(), module)
    start = time.process_time()
    problem = problem_of(module, mesh_of("8x8"), machine)
    posed = time.process_time() - start
    result = best_plan(problem)
    spent = time.process_time() - start
    print(
        f"llama, {layers} layers, 8x8 devices of {machine}: {spent:.1f} s CPU ({posed:.1f} to pose it), gap {result.gap:.0%}, "
        f"step {result.seconds:.3f} s, peak {result.memory.peak_bytes / 1e9:.1f} GB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--machine", default="dgx-2")
    parser.add_argument("--meshes", default="2,4,8,2x4")
    parser.add_argument("--width", type=int, default=8, help="of the beam; 0: without")
    parser.add_argument("--depths", default="12,96")
    parser.add_argument("--workloads", type=some_of(WORKLOADS), default=["gpt", "gat", "wide-resnet"])
    parser.add_argument("--llama", type=int, default=32, help="layers; 0: not at all")
    parser.add_argument("--tight", default="", help="limits, in shares of the fastest plan's memory")
    parser.add_argument("--untied", type=int, default=2, help="layers; 0: not at all")
    args = parser.parse_args()
    gc.set_threshold(200_000, 50, 50)  # as distir's tools do
    if args.meshes:
        for workload in args.workloads:
            module = training(args.layers, workload)
            for text in args.meshes.split(","):
                if args.tight:
                    shares = [float(share) for share in args.tight.split(",")]
                    tight(module, mesh_of(text), args.machine, shares, workload)
                else:
                    compare(module, mesh_of(text), args.machine, args.width, workload)
    if args.llama:
        llama(args.llama)
    if args.untied:
        untied(args.untied, args.machine)
    if args.depths:
        spent = [depth(int(layers), args.machine) for layers in args.depths.split(",")]
        print(f"deepest / shallowest: {spent[-1] / spent[0]:.2f}x")


if __name__ == "__main__":
    main()
