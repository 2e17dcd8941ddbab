"""Damaged inputs of every parser, all from seeds: truncated and bit-flipped ONNX and weights files, mutated program text of all levels,
machine files, pass pipelines, command lines, plan files, other tools' configurations, tables of schedules, and data, inputs and checkpoints of a training.

    python benchmarks/fuzz.py [--cases 10000] [--first 0]

Every case must be accepted or refused with a clear error (`DistirError`, a diagnostic of xDSL, one line of a command): never
another exception, the end of the process, more than 10 CPU seconds, or more than 2 GB. Cases run in a process of their own, whose
memory is limited; what fails is printed with its seed.
"""

import argparse
import faulthandler
import gc
import importlib
import io
import multiprocessing
import os
import random
import re
import resource
import runpy
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser

import distir.interpreters.machines

LIMIT_BYTES = 2 << 30
LIMIT_SECONDS = 10.0
CASES_OF_A_PROCESS = 5000
"""What one case leaves in memory (libraries' caches) is no fault of the next."""
EXAMPLES = Path(__file__).parents[1] / "examples"
PORTABLE = Path(__file__).parents[1] / "backends" / "torch" / "portable"

CONTROL_FLOW = """
<ir_version: 10, opset_import: ["" : 17, "local" : 1]>
main (float[N,3] x, int64 n, bool c) => (float[N,3] y, float[N,3] z)
<float[3] w = {1.0, 2.0, 3.0}, int64[2] target = {-1, 3}> {
  h = local.twice (x)
  s = Loop (n, c, h) <body = step (int64 i, bool go, float[N,3] a) => (bool on, float[N,3] b) {
    on = Identity (go)
    b = Add (a, w)
  }>
  y = If (c) <then_branch = yes () => (float[N,3] p) { p = Softmax <axis = 1> (s) },
              else_branch = no () => (float[N,3] q) { q = Reshape (x, target) }>
  z = Clip (y)
}
<opset_import: ["" : 17], domain: "local">
twice (v) => (r) { r = Add (v, v) }
"""


def models() -> list[onnx.ModelProto]:
    """Small models with what files hold: weights, shape arithmetic, old opsets, functions, graphs inside, metadata."""
    gpt2 = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    mlp = runpy.run_path(str(EXAMPLES / "mlp_onnx.py"))["build"]
    return [
        gpt2(n_layer=1, d_model=8, n_head=2, vocab=16, n_ctx=8),
        mlp([4, 8, 2], batch="batch"),
        onnx.parser.parse_model(CONTROL_FLOW),
    ]


def damaged(data: bytes, dice: random.Random) -> bytes:
    """The bytes cut short, or with up to 8 of them changed."""
    if dice.random() < 0.2:
        return data[: dice.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


FRAGMENTS = (
    "-1",
    "0",
    "?",
    "99999999999999999999",
    '"',
    "<",
    ">",
    "[",
    "}",
    "(",
    "%x",
    "tensor<",
    "dense<",
    "none",
    "i1",
)


NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "1e999",
    "nan",
    "4096",
    "2147483648",
    "9223372036854775808",
    "99999999999999999999",
)


def mutated(text: str, dice: random.Random) -> str:
    """The text cut short, or with up to 4 places changed: a character, a number, a piece moved or doubled, a token put in."""
    if text and dice.random() < 0.1:
        return text[: dice.randrange(len(text))]
    for _ in range(dice.randint(1, 4)):
        if not text:
            return dice.choice(FRAGMENTS)
        at, size = dice.randrange(len(text)), dice.randint(1, 12)
        numbers = [match.span() for match in re.finditer(r"\d+", text)]
        match dice.randrange(8 if numbers else 5):
            case 0:
                text = text[:at] + chr(dice.randrange(32, 127)) + text[at + 1 :]
            case 1:
                text = text[:at] + text[at + size :]
            case 2:
                text = text[:at] + text[at : at + size] + text[at:]
            case 3:
                text = text[:at] + dice.choice(FRAGMENTS) + text[at:]
            case 4:
                other = dice.randrange(len(text))
                text = text[:at] + text[other : other + size] + text[at + size :]
            case _:
                start, end = dice.choice(numbers)
                text = text[:start] + dice.choice(NUMBERS) + text[end:]
    return text


RULES = """builtin.module {
  dist.mesh @mesh = <["dp" = 2, "tp" = 4]>
  func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x8xf32> {dist.name = "w", dist.role = "parameter"})
      -> (tensor<4x8xf32> {dist.name = "y", dist.sharding = #dist.sharding<@mesh, [{"dp"}, {}], partial = {"tp": sum}>}) {
    %0 = "onnx.MatMul"(%x, %w) {
        dist.rule = #dist.rule<[S1, S2(pieces = [1, 1])], [S2, S3 * S4] -> {S1: gather(0), S2: reduce(sum), S3: gather(1), S4: gather(1, outer = S3)},
            sizes = {shape[1]: S3}, partial = [sum: 0 -> 0], offset = S3(ignored = -1), found = exact>,
        dist.strategy = #dist.strategy<@mesh, {"dp": S1, "tp": S3}>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    func.return %0 : tensor<4x8xf32>
  }
}
"""
PLACED = """builtin.module attributes {dist.devices = 2 : i64} {
  func.func @f(%a: tensor<4xf32, #dist.on<0>>, %b: tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) {
    %0, %1 = dist.allreduce sum %a, %b : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
        -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
    func.return %0, %1 : tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>
  }
  func.func @main(%x: tensor<4xf32, #dist.on<0>> {dist.name = "x", dist.part = #dist.part<[0:4] of [8]>}, %y: tensor<4xf32, #dist.on<1>> {dist.name = "y"})
      -> (tensor<2xf32, #dist.on<1>> {dist.name = "z"}) {
    %0, %1 = dist.call @f(%x, %y) on [0, 1] : (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
        -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>)
    %2 = dist.send %0 to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
    %3 = dist.slice %2 [1:3] : tensor<4xf32, #dist.on<1>> -> tensor<2xf32, #dist.on<1>>
    func.return %3 : tensor<2xf32, #dist.on<1>>
  }
}
"""
RANK = """builtin.module attributes {rank.rank = 0 : i64, dist.devices = 2 : i64} {
  func.func @main(%x: tensor<4xf32> {dist.name = "x"}) -> (tensor<4xf32> {dist.name = "y"}) {
    "rank.send"(%x) <{peer = 1 : i64}> : (tensor<4xf32>) -> ()
    %0 = "rank.recv"() <{peer = 1 : i64}> : () -> tensor<4xf32>
    func.return %0 : tensor<4xf32>
  }
}
"""
PLAN = """{"distir_plan": 1, "distir": "0.2", "model": {"path": "mlp.mlir", "shapes": {"x": [4, 4], "z": [4, 2]}},
 "machine": {"name": "dgx-2", "settings": [], "cost_model": "analytic"},
 "settings": {"dp": 2, "tp": 1, "pp": 1, "microbatches": 1, "schedule": null, "batch_size": 4, "zero": 0, "recompute": "none"},
 "figures": {"throughput": 0.5}}"""
SCHEDULES = (
    "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n",
    "0F0,0SEND_F0,0F1,0RECV_B0,0I0,0W0,0B1\n1RECV_F0,1F0,(1F1;1B0)OVERLAP_F_B,1B1,1REDUCE_GRAD\n",
)
CONFIGURATIONS = (
    ("megatron", "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 16 --use-distributed-optimizer"),
    ("torchtitan", '[parallelism]\ntensor_parallel_degree = 2\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "1F1B"\n[training]\nlocal_batch_size = 8\n'),
    ("deepspeed", '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'),
    ("accelerate", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\nnum_processes: 8\n"),
)  # fmt: skip
CHECKPOINT = """{"step": 7, "seed": 0, "data": "t.txt", "files": {"model.safetensors": {"bytes": 100, "sha256": "00"}, "optimizer.safetensors": {"bytes": 0, "sha256": "00"}}}"""
PIPELINES = (
    "onnx-fold-shapes,outline-repeats,shardcombine-annotate",
    'ilp-shard{axes=dp=2 machine="dgx-2" time-limit=5 memory-limit=1000000}',
    "dtp-parallelize{dp=2 tp=1 pp=2 microbatches=2 schedule=gpipe}",
    "batch-shard{axis=dp shards=2},apply-sharding",
    "project-to-rank{rank=0}",
    'beam-shard{axes=tp=2 machine="dgx-1" width=4}',
    "simulate{machine=dgx-2}",
)
COMMANDS = (
    "import mlp.onnx --shape x=4,4 --parameters w -o out.mlir",
    "import mlp.onnx --train loss=mse_loss optimizer=adamw:lr=1e-3,betas=0.9,0.95 freeze=w*",
    "search mlp.mlir --machine dgx-2 --devices 4 --batch-sizes 4..16 --microbatches 1,2 --schedules gpipe,1f1b --top 2 --memory-limit 28GB",
    "simulate placed.mlir --machine dgx-a100 --json",
    "simulate placed.mlir --machine mine.toml --trace t.json --window 0ms..1ms --devices 0,1 --depth op",
    "verify mlp.mlir mlp.mlir --tolerance 1e-10 --dtype f64 --seed 3",
    "verify mlp.mlir mlp.mlir --proof --entry main --json",
    "import mlp.onnx --entry main --opset 17 --weights w.safetensors -o out.mlir",
    "simulate placed.mlir --machine dgx-2 --set levels.0.bandwidth=1e9 --set peak_flops=1e12 --cost-model analytic --dtype f32",
    "search mlp.mlir --machine dgx-2 --devices 2 --sharding ilp --time-limit 2 --zero 1 --tp 2 --recompute none --jobs 1 --json",
    "plan show plan.json",
    "plan compare plan.json plan.json --model mlp.mlir --machine dgx-1 --json",
    "plan apply plan.json --model mlp.mlir -o out.mlir",
    "plan export megatron plan.json -o out.txt",
    "plan import megatron --devices 16 --batch-size 16 -o out.json -- --tensor-model-parallel-size 2 --global-batch-size 16",
    "doctor mlp.mlir --seconds 5 --value z=1",
    "doctor mlp.onnx --shape x=4,4 --shape z=4,2 --seconds 3 --json",
    "cache show --operators --json",
    "plugins",
    "completion bash",
    "run mlp.mlir --emit emitted --inputs in.npz --seed 3",
    "train plan.json --model mlp.mlir --data d.txt --tokens uint8 --steps 1 --checkpoint-every 1 --keep 2 --log log.jsonl --seed 1 --timeout 5",
    "machines mine.toml",
    "machines dgx-1",
)

ODD_WORDS = (
    *(
        "",
        " ",
        "-",
        "--",
        "-o",
        ".",
        "..",
        "a\tb",
        "é",
        "\x1b[31m",
        "--help",
        "=",
        ",",
        "a=b=c",
        "x=",
        "=4",
        "1..0",
        "[",
        "%s",
    ),
    *("mlp.mlir", "placed.mlir", "plan.json", "w.safetensors", "mlp.onnx", "mine.toml", "in.npz", "d.txt", "out.mlir"),
)


def parse_program_text(path: Path, text: str) -> None:
    from distir.frontends.weights import load

    path.write_text(text, "utf-8")
    str(load(path))


class Inputs:
    """What is damaged: by kind, valid inputs, and what reads one of them in the folder of the case. `None` is accepted, like status 0."""

    def __init__(self, folder: Path) -> None:
        from distir.frontends.onnx import import_model
        from distir.interpreters.weights import write_weights

        self.folder = folder
        bases = models()
        self.files = [model.SerializeToString() for model in bases]
        self.texts = [str(import_model(model)) for model in bases]
        write_weights(
            {"a": np.ones((2, 3), np.float32), "b": np.ones(4, ml_dtypes.float8_e5m2)}, folder / "w.safetensors"
        )
        self.weights = [(folder / "w.safetensors").read_bytes()]
        machines = Path(distir.interpreters.machines.__file__).parent
        self.machines = [path.read_text("utf-8") for path in sorted(machines.glob("*.toml"))]
        onnx.save(bases[1], folder / "mlp.onnx")
        module = import_model(bases[1], {"x": (4, 4), "z": (4, 2)})
        (folder / "mlp.mlir").write_text(str(module), "utf-8")
        (folder / "placed.mlir").write_text(PLACED, "utf-8")
        (folder / "plan.json").write_text(PLAN, "utf-8")
        (folder / "case.config").write_text(CONFIGURATIONS[0][1], "utf-8")
        np.savez(folder / "in.npz", x=np.ones((4, 4), np.float32), z=np.ones((4, 2), np.float32))
        (folder / "d.txt").write_text("words " * 50)
        (folder / "mine.toml").write_text(self.machines[0], "utf-8")
        self.kinds: dict[str, Callable[[random.Random], int | None]] = {
            "text": lambda dice: parse_program_text(folder / "case.mlir", mutated(dice.choice(self.texts), dice)),
            "ONNX file": self.onnx_file,
            "program of level 2 to 4": self.program,
            "weights": self.weights_file,
            "machine": self.machine,
            "pipeline": self.pipeline,
            "command": self.command,
            "plan": self.plan,
            "schedule": self.schedule,
            "configuration": self.configuration,
            "data": self.data,
            "checkpoint": self.checkpoint,
        }
        numbers = io.BytesIO()
        np.savez(numbers, x=np.ones((8, 4), np.float32), y=np.arange(8))
        row = io.BytesIO()
        np.save(row, np.arange(40, dtype=np.uint16))
        self.arrays = [(".npz", numbers.getvalue()), (".npy", row.getvalue()), (".safetensors", self.weights[0]), (".bin", bytes(80)), (".txt", b"words " * 9)]  # fmt: skip

    def onnx_file(self, dice: random.Random) -> None:
        from distir.frontends.onnx import import_model

        path = self.folder / "case.onnx"
        path.write_bytes(damaged(dice.choice(self.files), dice))
        module = import_model(path)
        module.verify()
        str(module)

    def program(self, dice: random.Random) -> None:
        from distir.interpreters.machines import load_machine
        from distir.interpreters.simulate import simulate

        path = self.folder / "case.mlir"
        text = dice.choice((RULES, PLACED, RANK))
        path.write_text(mutated(text, dice), "utf-8")
        from distir.tools.commands.model import load_program

        module = load_program(str(path))
        str(module)
        if text is PLACED:
            simulate(module, load_machine("dgx-2"))

    def weights_file(self, dice: random.Random) -> None:
        from distir.interpreters.weights import WeightFile

        path = self.folder / "case.safetensors"
        path.write_bytes(damaged(dice.choice(self.weights), dice))
        for array in WeightFile(path).values():
            float(np.asarray(array, np.float64).sum())

    def machine(self, dice: random.Random) -> None:
        from distir.interpreters.machines import load_machine

        path = self.folder / "case.toml"
        path.write_text(mutated(dice.choice(self.machines), dice), "utf-8")
        load_machine(str(path))

    def pipeline(self, dice: random.Random) -> int:
        from distir.tools.opt_driver import run_driver

        return run_driver([str(self.folder / "mlp.mlir"), "-p", mutated(dice.choice(PIPELINES), dice)])

    def command(self, dice: random.Random) -> int:
        from distir.tools.commands.main import run_command

        words = list[str](dice.choice(COMMANDS).split())
        for _ in range(dice.randint(1, 2)):
            at = dice.randrange(len(words) + 1)
            if at == len(words):
                continue
            match dice.randrange(5):
                case 0:
                    words[at] = mutated(words[at], dice).replace("/", "")
                case 1:
                    words[at : at + 1] = dice.choice(([], words[at : at + 1] * 2))
                case 2:
                    words[at] = re.sub(r"\d+", dice.choice(NUMBERS), words[at])
                case 3:
                    words[at] = dice.choice(ODD_WORDS)
                case _:
                    words[at:at] = dice.choice([w.split() for w in COMMANDS])[2:4]
        return run_command(words)

    def plan(self, dice: random.Random) -> int:
        from distir.tools.commands.main import run_command

        path = self.folder / "case.json"
        path.write_text(mutated(PLAN, dice), "utf-8")
        return run_command(
            ["plan", *dice.choice((("show",), ("apply", "--model", "mlp.mlir", "-o", "out.mlir"))), str(path)]
        )

    def schedule(self, dice: random.Random) -> None:
        from distir.passes.distribution.pipeline.table import read_table

        path = self.folder / "case.csv"
        path.write_text(mutated(dice.choice(SCHEDULES), dice), "utf-8")
        read_table(path).in_flight()

    def configuration(self, dice: random.Random) -> None:
        from distir.tools.plan_formats import read_config

        tool, text = dice.choice(CONFIGURATIONS)
        path = self.folder / "case.config"
        path.write_text(mutated(text, dice), "utf-8")
        read_config(tool, str(path), dice.choice((None, 8, 16)))

    def data(self, dice: random.Random) -> None:
        from distir.backends.torch.portable.distir_data import DataError, open_data
        from distir.dialects.errors import DistirError
        from distir.tools.commands.values import read_arrays

        suffix, content = dice.choice(self.arrays)
        path = self.folder / f"case{suffix}"
        path.write_bytes(damaged(content, dice))
        ports = [{"name": "x", "role": "input", "dtype": "float32", "shape": [4, 4]}, {"name": "y", "role": "label", "dtype": "int64", "shape": [4]}]  # fmt: skip
        tokens = [
            {"name": n, "role": r, "dtype": "int64", "shape": [2, 5]} for n, r in (("x", "input"), ("y", "label"))
        ]
        try:
            open_data(path, ports if suffix in (".npz", ".safetensors") else tokens).batch(0, 1)
        except DataError:
            if suffix != ".npz":
                raise DistirError("refused") from None
        if suffix == ".npz":
            read_arrays(str(path), ["x", "y"])

    def checkpoint(self, dice: random.Random) -> None:
        from distir.dialects.errors import DistirError

        if str(PORTABLE) not in sys.path:
            sys.path.append(str(PORTABLE))
        distir_arrays, distir_checkpoints = map(importlib.import_module, ("distir_arrays", "distir_checkpoints"))
        folder = self.folder / "checkpoints" / "step_00000007"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(damaged(self.weights[0], dice))
        (folder / "optimizer.safetensors").write_bytes(b"")
        (folder / "checkpoint.json").write_text(mutated(CHECKPOINT, dice), "utf-8")
        path, _, _ = distir_checkpoints.newest(folder.parent)
        port = {"name": "a", "role": "parameter", "dtype": "float32", "shape": [2, 3], "ranges": [], "dims": []}
        try:
            distir_arrays.read([folder / "model.safetensors"], [port])
        except (OSError, ValueError):
            raise DistirError("refused") from None
        if path is None:
            raise DistirError("refused")

    def attempt(self, number: int) -> str:
        """`accepted` or `refused`; anything else is raised."""
        from xdsl.utils.exceptions import DiagnosticException, ParseError

        from distir.dialects.errors import DistirError

        dice = random.Random(number)
        read = self.kinds[kind_of(number)]
        printed = io.StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                status = read(dice)
        except (DiagnosticException, DistirError, ParseError):
            return "refused"
        if status not in (None, 0, 1, 3):
            raise ValueError(f"status {status}")
        if "Traceback" in printed.getvalue():
            raise ValueError(printed.getvalue())
        return "refused" if status else "accepted"


KINDS = (
    *("text", "ONNX file", "program of level 2 to 4", "weights", "machine", "pipeline", "command"),
    *("plan", "schedule", "configuration", "data", "checkpoint"),
)


def kind_of(number: int) -> str:
    return KINDS[number % len(KINDS)]


def work(first: int, last: int, connection: Connection) -> None:
    """Run the cases and report each; the process that started this one watches the clock."""
    faulthandler.disable()
    warnings.simplefilter("ignore")
    gc.set_threshold(200_000, 50, 50)
    with TemporaryDirectory() as name:
        os.chdir(name)
        inputs = Inputs(Path(name))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, used + LIMIT_BYTES))
        for number in range(first, last):
            connection.send((number, None))
            try:
                result = inputs.attempt(number)
            except BaseException as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                text = " ".join(str(error).split())[:150]
                result = f"{type(error).__module__}.{type(error).__name__}: {text} ({Path(place.filename).name}:{place.lineno})"
            connection.send((number, result))


def cpu_seconds(process: Any) -> float:
    """What a process has used; none if it has ended."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def outcomes(first: int, count: int) -> Iterator[tuple[int, str]]:
    """(case, what became of it), in order; a process that dies or hangs is replaced after the case that it failed."""
    context = multiprocessing.get_context("spawn")
    last = first + count
    while first < last:
        ours, theirs = context.Pipe()
        until = min(first + CASES_OF_A_PROCESS, last)
        process = context.Process(target=work, args=(first, until, theirs), daemon=True)
        process.start()
        theirs.close()
        started, spent, deadline = False, 0.0, 0.0
        while first < until:
            try:
                if not ours.poll(LIMIT_SECONDS if started else 120):
                    if started and cpu_seconds(process) - spent < LIMIT_SECONDS and time.monotonic() < deadline:
                        continue  # the machine is busy
                    result: Any = f"more than {LIMIT_SECONDS:g} seconds"
                else:
                    number, result = ours.recv()
                    started = True
                    if result is None:
                        spent, deadline = cpu_seconds(process), time.monotonic() + 20 * LIMIT_SECONDS
                        continue
                    yield number, result
                    first = number + 1
                    continue
            except EOFError:
                process.join()
                result = f"the process ended with status {process.exitcode}"
            yield first, result
            first += 1
            break
        process.kill()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="damaged inputs of every parser")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first case")
    options = parser.parse_args()
    start = time.perf_counter()
    found = Counter[str]()
    for number, result in outcomes(options.first, options.cases):
        bad = result not in ("accepted", "refused")
        found["failed" if bad else result] += 1
        if bad:
            print(f"case {number} ({kind_of(number)}): {result}", flush=True)
    print(
        f"{options.cases} cases in {time.perf_counter() - start:.0f} s: {found['refused']} refused with a clear error, "
        f"{found['accepted']} accepted, {found['failed']} failed"
    )


if __name__ == "__main__":
    main()
