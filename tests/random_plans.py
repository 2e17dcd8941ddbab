"""Random plans of random programs: the number of a case goes in; what became of it comes out, or a `Fault` that says what does not hold.

A plan may use every option of `dtp-parallelize`, `expand-ranks` and `fuse-kernels`. The text of a distributed program is what is checked:
it is valid and parses back to itself, computes in f64 what the sequential program does (all devices together, and rank by rank), is proven,
takes in both simulations the same, to the picosecond and byte, and is what the search said that it takes."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import isclose
from pathlib import Path
from random import Random
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp

from distir.dialects.attention import AttentionOp
from distir.dialects.dist import AccumulateOp
from distir.dialects.errors import DistirError
from distir.dialects.registry import program_context
from distir.dialects.sharding import MeshOp
from distir.frontends.text import parse_program
from distir.interpreters.entry import arguments_of, entry_function, machine_devices, results_of
from distir.interpreters.equivalence import verify
from distir.interpreters.module_check import check_module
from distir.interpreters.proof import prove
from distir.interpreters.ranks import explicit
from distir.interpreters.simulate import simulate, summarize
from distir.passes.decompose import prepare_like
from distir.passes.distribution.pipeline.streams import stream_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.expand_ranks import ExpandRanksPass
from distir.passes.fuse_kernels import FuseKernelsPass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.project_to_rank import project
from tests.random_programs_to_plan import layers_step, program
from tests.slow_machine import written

PLAIN = ("1f1b", "1f1b", "gpipe", "pipedream")
MORE = ("interleaved", "looped-bfs", "zb-h1", "zbv", "dualpipev")
RESTRICTIONS = ("dp=batch,tp=model", "dp=batch", "", "tp=model")
POLICIES = ("none", "none", "none", "full", "selective", "full:1", "selective:2/1", "names")
SHAPES = [
    (dp, tp, pp, microbatches)
    for dp, tp, pp, microbatches in product((1, 1, 2, 3, 4), (1, 1, 2, 3), (1, 1, 2, 2, 3), (1, 2, 2, 3, 4, 6))
    if 1 <= dp * tp * pp <= 8 and dp * tp * pp * microbatches > 1
]
"""Degrees and microbatches, those that are often asked for several times."""
SECONDS = 20.0
"""For a search, by the clock."""


class Fault(Exception):
    """What does not hold of a case."""


@dataclass(frozen=True)
class Case:
    """A program and how it is distributed."""

    number: int
    what: str
    sequential: ModuleOp
    options: DtpParallelizePass
    tight: float | None
    """The memory limit, as a share of what the plan without one takes."""
    expand: bool
    backend: str
    """For `fuse-kernels`; none: the pass is left out."""

    def passes(self) -> str:
        """For `distir-opt -p`."""
        fuse = [f"fuse-kernels{{backend={self.backend}}}"] * bool(self.backend)
        return ",".join([str(self.options.pipeline_pass_spec()), *["expand-ranks"] * self.expand, *fuse])


def draw(number: int, folder: Path) -> Case:
    """The case of this number; `folder` is for the file of a machine."""
    random = Random(number)
    what, sequential = program(random)
    rows = max(_rows(sequential), 1)
    fitting = [each for each in SHAPES if rows % (each[0] * each[3]) == 0]
    dp, tp, pp, microbatches = random.choice(fitting if random.random() < 0.95 else SHAPES)
    sharding = random.choice(["auto", "auto", "ilp", "ilp"])
    ilp = sharding == "ilp"
    schedule = random.choice(PLAIN if random.random() < 0.4 or pp == 1 else MORE)
    options = DtpParallelizePass(
        dp=dp,
        tp=tp,
        pp=pp,
        microbatches=microbatches,
        schedule=schedule,
        virtual=random.choice([0, 0, 0, 2, 3]) if ilp and schedule in ("interleaved", "looped-bfs") else 0,
        machine=random.choice([written(folder), written(folder), "dgx-a100", "local-cpu"]),
        overlap=random.random() < 0.25,
        sharding=sharding,
        zero=random.choice([None, None, 0, 1, 2, 3]) if ilp else None,
        restrict=random.choice(RESTRICTIONS) if ilp else "dp=batch,tp=model",
        time_limit=SECONDS,
        divide=ilp and random.random() < 0.2,
        recompute=_names(sequential, random) if (policy := random.choice(POLICIES)) == "names" else policy,
        grouped=ilp and random.random() < 0.5,
    )
    tight = random.uniform(0.6, 1.0) if ilp and random.random() < 0.3 else None
    backend, expand = random.choice(["", "", "inductor", "megatron"]), random.random() < 0.3
    bucket = random.choice([0, 0, 256, 25 * 2**20])
    gradients = random.choice(["", "", "bf16", "f32"])
    options = replace(
        options, bucket=bucket, gradient_type=gradients, chunks=random.choice([1, 2, 2, 3]), chunk_all=True
    )
    if ilp and random.random() < 0.5 and _has_attention(sequential):
        options = replace(options, cp=random.choice([2, 2, 3, 4]))
    if ilp and dp > 1 and random.random() < 0.3:
        options = replace(options, dp_replicate=random.choice([each for each in (2, 3, 4) if dp % each == 0] or [1]))
    return Case(number, what, sequential, options, tight, expand, backend)


def draw_layers(number: int, folder: Path) -> Case:
    """The case of this number among those of equal layers, of which messages have streams: parameters and gradients in parts, mostly in several microbatches."""
    random = Random(f"layers {number}")
    dp, tp, pp, microbatches = random.choice(
        [each for each in SHAPES if each[0] > 1 and each[0] * each[1] * each[2] <= 4]
    )
    microbatches = max(microbatches, random.choice([1, 2, 2, 2]))
    what, sequential = layers_step(random, dp * microbatches * random.choice([1, 2]))
    schedule = random.choice(PLAIN if pp == 1 or random.random() < 0.4 else MORE)
    options = DtpParallelizePass(
        dp=dp,
        tp=tp,
        pp=pp,
        microbatches=microbatches,
        schedule=schedule,
        machine=random.choice([written(folder), written(folder), written(folder), "v100-pcie"]),
        overlap=True,
        bucket=random.choice([0, 256, 25 * 2**20]),
        prefetch=random.choice([0, 1, 1, 2]),
        chunks=random.choice([1, 1, 2]),
        chunk_all=True,
        sharding="ilp",
        zero=random.choice([2, 2, 3, 3, None]),
        restrict=random.choice(["dp=batch", "dp=batch", "dp=batch,tp=model"]),
        time_limit=SECONDS,
        divide=random.random() < 0.2,
        recompute=_names(sequential, random) if (policy := random.choice(POLICIES)) == "names" else policy,
        grouped=random.random() < 0.5,
        gradient_type=random.choice(["", "", "bf16", "f32"]),
        dp_replicate=2 if dp == 4 and random.random() < 0.2 else 1,
    )
    return Case(number, what, sequential, options, None, random.random() < 0.2, random.choice(["", "", "inductor"]))


def _has_attention(module: ModuleOp) -> bool:
    return any(isinstance(op, AttentionOp) for op in module.walk())


def _rows(module: ModuleOp) -> int:
    """Of the batch."""
    shapes = [port.type.get_shape() for port in arguments_of(entry_function(module)) if port.role == "input"]
    return shapes[0][0] if shapes and shapes[0] else 1


def _names(module: ModuleOp, random: Random) -> str:
    """Some operators of the program."""
    names = sorted({op.name.split(".")[1] for op in entry_function(module).body.block.ops if "." in op.name})
    return ",".join(random.sample(names, min(len(names), 3)))


@dataclass
class Found:
    """What became of a case."""

    refused: str = ""
    """Why it cannot be distributed so."""
    unproven: str = ""
    counts: Counter[str] = field(default_factory=Counter[str])


def check(case: Case) -> Found:
    """Raises Fault, or whatever else comes."""
    with redirect_stderr(io.StringIO()):
        try:
            if case.tight is not None:
                _, predicted = _distributed(case)
                limit = f"{int(case.tight * predicted[1])}B" if predicted else ""
                case = replace(case, options=replace(case.options, memory_limit=limit), tight=None)
            module, predicted = _distributed(case)
        except DistirError as refusal:
            return Found(str(refusal))
    text = str(_valid(module, "the module"))
    parsed = _valid(parse_program(program_context(), text, "distributed"), "its text")
    if str(parsed) != text:
        raise Fault("its text parses to another")
    _check_updates(parsed)
    found = Found()
    found.counts["grouped"] = explicit(parsed) is not parsed
    sums = (op.results[0] for op in parsed.walk() if isinstance(op, AccumulateOp))
    found.counts["sums on streams"] = any(stream_of(value) for value in sums)
    _compare_simulations(parsed, case, predicted, found)
    _compare_results(parsed, case, found)
    return found


def _distributed(case: Case) -> tuple[ModuleOp, tuple[float, int] | None]:
    """The distributed program, and time and memory as the search had them, where it is what was searched."""
    module, predicted = case.sequential.clone(), None
    for each in case.options.pipeline():
        each.apply(Context(), module)
        if isinstance(each, IlpShardPass):
            predicted = _said(module)
    if case.expand:
        ExpandRanksPass().apply(Context(), module)
    if case.backend:
        FuseKernelsPass(case.backend).apply(Context(), module)
    return module, predicted


def _said(module: ModuleOp) -> tuple[float, int]:
    (mesh,) = [op for op in module.body.block.ops if isinstance(op, MeshOp)]
    seconds, peak = mesh.attributes["dist.seconds"], mesh.attributes["dist.peak_memory_bytes"]
    assert isinstance(seconds, FloatAttr)
    assert isinstance(peak, IntegerAttr)
    return seconds.value.data, peak.value.data


def _valid(module: ModuleOp, what: str) -> ModuleOp:
    try:
        module.verify()
        check_module(module)
    except Exception as error:
        raise Fault(f"{what} is not valid: {error}") from error
    return module


def _check_updates(module: ModuleOp) -> None:
    """An update is where the argument is, so that the next step can follow."""
    entry = entry_function(module)
    taken, made = ([(p.name, p.on, p.part) for p in ports(entry)] for ports in (arguments_of, results_of))
    names = {name for name, _, _ in made}
    if lost := [each for each in taken if each[0] in names and each not in made]:
        raise Fault(f"the update of {lost[0][0]} is not where its next step needs it")


def _compare_simulations(module: ModuleOp, case: Case, predicted: tuple[float, int] | None, found: Found) -> None:
    oracle, summary = (_run(simulated, module, case.options.machine) for simulated in (simulate, summarize))
    streams = oracle.clocks.keys() | summary.clocks.keys()
    if {s: oracle.clocks.get(s, 0) for s in streams} != {s: summary.clocks.get(s, 0) for s in streams}:
        raise Fault(f"clocks are {oracle.clocks} op by op, {summary.clocks} by summaries")
    for name in ("makespan_picoseconds", "peak_memory_bytes", "busy_seconds", "counts"):
        if (one := getattr(oracle, name)) != (other := getattr(summary, name)):
            raise Fault(f"{name}: {one} op by op, {other} by summaries")
    if predicted is None or case.options.overlap or case.options.cp > 1 or case.backend:
        return
    found.counts["predicted"] += 1
    seconds, peak = predicted
    if not isclose(oracle.makespan_seconds, seconds, rel_tol=1e-9):
        raise Fault(f"it takes {oracle.makespan_seconds} s; the search said {seconds} s")
    highest = max(oracle.peak_memory_bytes.values())
    if case.options.machine.endswith(".toml") and highest != peak:  # other machines round what tensors take
        raise Fault(f"it holds {highest} bytes; the search said {peak}")
    if (
        case.options.memory_limit
        and case.options.machine.endswith(".toml")
        and highest > int(case.options.memory_limit[:-1])
    ):
        raise Fault(f"it holds {highest} bytes, not {case.options.memory_limit}")


def _run(function: Callable[..., Any], *given: Any) -> Any:
    """The result; a DistirError, which a valid program has no reason for, is a fault."""
    try:
        return function(*given)
    except DistirError as error:
        raise Fault(f"{getattr(function, '__name__', 'verify')}: {error}") from error


def _compare_results(module: ModuleOp, case: Case, found: Found) -> None:
    written_out = explicit(module)
    count = machine_devices(written_out, entry_function(written_out))
    ranks = [_run(project, written_out, rank) for rank in range(count)]
    for what, distributed in (("all devices", module), ("ranks", ranks)):
        verification = _run(partial(verify, count=1), case.sequential, distributed)
        if wrong := [c for c in verification.comparisons if not c.holds]:
            raise Fault(f"{what}: {wrong[0].name}: {wrong[0].says}")
    prepared = case.sequential.clone()
    prepare_like(prepared, module)
    proof = prove(prepared, module)
    if proof:
        found.counts["proven"] += 1
    else:
        found.unproven = str(proof.failures[0])
