"""The findings of `distir doctor`. In goes a model; out comes a dictionary of plain values: its operators and sizes,
what can be divided, plans that were tried, commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

from distir.dialects.errors import DistirError
from distir.tools.commands.doctor import shell, stem
from distir.tools.commands.model import load_model, make_static, open_dimensions

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

PLANS = (
    "dtp-parallelize{dp=2 tp=2}",
    "dtp-parallelize{dp=2 pp=2 microbatches=2}",
    'ilp-shard{mesh="dp=2,tp=2" divide=true},apply-sharding',
)
GUESSED_BATCH, GUESSED = 8, ((16, 64), (64, 224), (8, 16), (224, 32))
"""Sizes that open dims are given where the user says none: the first dim of an input; others, and those of images (rank 4); the first pair
that makes every shape static is taken."""
SLOW_SECONDS = 5.0
MACHINE = "dgx-a100"


@dataclass
class _Clock:
    """CPU seconds of this process and of those that it waited for, by step."""

    spent: dict[str, float] = field(default_factory=dict[str, float])

    @contextlib.contextmanager
    def step(self, name: str) -> Generator[None]:
        began = _cpu_seconds()
        try:
            yield
        finally:
            self.spent[name] = self.spent.get(name, 0.0) + _cpu_seconds() - began


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def diagnosed(model: str, shapes: Sequence[str], values: Sequence[str], seconds: float) -> dict[str, Any]:
    """All that there is to say of a model, as values for JSON. Raises DistirError where it cannot be imported."""
    clock = _Clock()
    with clock.step("import"):
        module = load_model(model, shapes, {"values": values})
    found: dict[str, Any] = {"model": model, **_what_goes_in(module)}
    found["open"] = [f"{what}: {option}" for what, option in open_dimensions(module)]
    file = f"{stem(model)}.mlir"
    with clock.step("shapes"):
        bound, why = _static(module, model, shapes, values)
    given = bound.shapes if bound is not None else list(shapes)
    options = [word for shape in given for word in ("--shape", shape)]
    options += [word for value in values for word in ("--value", value)]
    import_it = shell("distir", "import", model, *options, "-o", file)
    found |= {"shapes": given, "static": bound is not None, "why": why}
    if bound is None:
        return found | {"commands": [import_it], "seconds": clock.spent}
    module = bound.module
    with clock.step("rules"):
        slow_kinds, failures = _annotate(module)
    with clock.step("what axes can divide"):
        found |= _divisions(module, failures)
    with clock.step("plans"):
        found["plans"] = [asdict(_tried(module, plan, seconds)) for plan in PLANS]
    found["seconds"] = {step: round(spent, 1) for step, spent in clock.spent.items()}
    found["slow"] = [
        *(
            f"rules of {kind}: {spent:.0f} s, once (they are kept)"
            for kind, spent in slow_kinds
            if spent > SLOW_SECONDS
        ),
        *(
            f"{plan['plan']}: {plan['seconds']:.0f} s"
            for plan in found["plans"]
            if plan["seconds"] > SLOW_SECONDS and plan["work"] is not None
        ),
    ]
    found["commands"] = [import_it, *_commands(module, file, found["plans"])]
    return found


# --- what it consists of ---


def _what_goes_in(module: ModuleOp) -> dict[str, Any]:
    from xdsl.dialects.builtin import TensorType
    from xdsl.traits import ConstantLike

    from distir.interpreters.entry import arguments_of, entry_function
    from distir.interpreters.work import type_bytes

    ports = arguments_of(entry_function(module))
    taken = [port for port in ports if port.role not in ("parameter", "buffer", "state")]
    held = {role: [p.type for p in ports if p.role == role] for role in ("parameter", "buffer", "state")}
    held["constant"] = [op.results[0].type for op in module.walk() if op.has_trait(ConstantLike) and op.results]
    counts: dict[str, dict[str, int]] = {}
    for role, types in held.items():
        tensors = [cast("TensorType[Any]", t) for t in types if isinstance(t, TensorType) and t.has_static_shape()]
        if tensors:
            elements = sum(_elements(tensor) for tensor in tensors)
            counts[role] = {"tensors": len(types), "elements": elements, "bytes": sum(map(type_bytes, tensors))}
    inputs = [{"role": port.role or "input", "name": port.name, "type": str(port.type)} for port in taken]
    return {"inputs": inputs, "held": counts}


def _elements(tensor: Any) -> int:
    from math import prod

    return prod(tensor.get_shape())


@dataclass(frozen=True)
class _Bound:
    """A program with static shapes, and the options that give it them."""

    module: ModuleOp
    shapes: list[str]


def _static(module: ModuleOp, model: str, shapes: Sequence[str], values: Sequence[str]) -> tuple[_Bound | None, str]:
    """The program with static shapes, open dims of inputs guessed; or why there is none."""
    if not open_dimensions(module):
        try:
            make_static(module, model)
        except DistirError as error:
            return None, str(error)
        return _Bound(module, list(shapes)), ""
    why = ""
    for others, of_images in GUESSED:
        given = [*shapes, *_guesses(module, others, of_images)]
        try:
            bound = load_model(model, given, {"values": values})
            make_static(bound, model)
            return _Bound(bound, given), ""
        except DistirError as error:
            why = why or str(error)
    return None, why


def _guesses(module: ModuleOp, others: int, of_images: int) -> list[str]:
    """`--shape` for inputs with open dims. Dims of one name have one size."""
    from distir.frontends.shapes import argument_dims, argument_name
    from distir.interpreters.entry import entry_function

    function = entry_function(module)
    sizes: dict[str, int] = {}
    found: list[str] = []
    for i in range(len(function.args)):
        dims = argument_dims(function, i) or []
        if all(isinstance(dim, int) for dim in dims):
            continue
        chosen: list[int] = []
        for d, dim in enumerate(dims):
            guess = GUESSED_BATCH if d == 0 else of_images if len(dims) == 4 else others
            chosen.append(dim if isinstance(dim, int) else sizes.setdefault(dim, guess) if dim else guess)
        found.append(f"{argument_name(function, i)}={','.join(map(str, chosen))}")
    return found


# --- rules, and what they let axes divide ---


def _annotate(module: ModuleOp) -> tuple[list[tuple[str, float]], dict[str, str]]:
    """Gives the program rules; the CPU seconds that kinds of operators took which took longest; and why kinds have no rule, of the first
    operation of a kind that says why."""
    from xdsl.context import Context
    from xdsl.dialects.func import FuncOp

    from distir.passes.outline_repeats import OutlineRepeatsPass
    from distir.passes.shardcombine.cache import RuleCache
    from distir.passes.shardcombine.discovery import Discovery
    from distir.passes.shardcombine.domains import InterpreterDomains
    from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass, is_operator
    from distir.passes.structure import is_annotated

    if is_annotated(module):
        return [], {}
    OutlineRepeatsPass().apply(Context(), module)
    discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
    by_kind: dict[str, list[Any]] = {}
    for function in module.ops:
        for op in function.body.block.ops if isinstance(function, FuncOp) else ():
            if is_operator(op):
                by_kind.setdefault(op.name, []).append(op)
    spent: list[tuple[str, float]] = []
    failures: dict[str, str] = {}
    with contextlib.redirect_stderr(io.StringIO()):
        for kind, ops in by_kind.items():
            began = _cpu_seconds()
            discovery.rules(ops)
            spent.append((kind, _cpu_seconds() - began))
            failures[kind] = next(filter(None, map(discovery.why_unknown, ops)), "")
        discovery.cache.save()
        ShardcombineAnnotatePass().apply(Context(), module)
    return sorted(spent, key=lambda each: -each[1])[:5], failures


def _divisions(module: ModuleOp, failures: Mapping[str, str]) -> dict[str, Any]:
    from distir.interpreters.entry import entry_function
    from distir.passes.distribution.batch.batch_axis import parse_batch
    from distir.passes.distribution.divisibility import divisibility
    from distir.passes.shardcombine_annotate import is_operator
    from distir.passes.structure import calls_first, executions

    entry = entry_function(module)
    divisions = divisibility(module, entry, parse_batch("", entry))
    ordered = calls_first(module, "main")
    times = executions(ordered, entry)
    executed: Counter[str] = Counter()
    distinct = 0
    for function in ordered:
        names = [op.name for op in function.body.block.ops if is_operator(op)]
        distinct += len(names)
        for name in names:
            executed[name] += times[function.sym_name.data]
    return {
        "operations": {"executed": sum(executed.values()), "kinds": len(executed), "distinct": distinct},
        "without_rule": [asdict(kind) | {"why": failures.get(kind.name, "")} for kind in divisions.without_rule],
        "only_batch": [asdict(kind) for kind in divisions.only_batch],
        "axes": {"batch": asdict(divisions.batch), "tensor": asdict(divisions.tensor)},
    }


# --- plans ---


@dataclass(frozen=True)
class Tried:
    """What came of a plan."""

    plan: str
    says: str = ""
    """Why there is none."""
    work: float | None = None
    """Flops of the device that does most, of those of the program."""
    parameters: float | None = None
    """Bytes of parameters on the device that has most, of all."""
    seconds: float = 0.0


def _tried(module: ModuleOp, plan: str, seconds: float) -> Tried:
    """A plan, made in a fork of this process that may take so many CPU seconds."""
    from distir.interpreters.isolation import NoAnswer, answers

    began = _cpu_seconds()

    def made() -> str:
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                return json.dumps(asdict(_made(module, plan)))
            except DistirError as error:
                return json.dumps(asdict(Tried(plan, str(error))))

    (answer,) = answers([made], cpu_seconds=seconds)
    if isinstance(answer, NoAnswer):
        return Tried(plan, f"planning {answer.reason}", seconds=round(_cpu_seconds() - began, 1))
    return Tried(**json.loads(answer))


def _made(module: ModuleOp, plan: str) -> Tried:
    from xdsl.context import Context

    from distir.interpreters.shares import parameter_share, work_share

    began = time.process_time()
    copy = module.clone()
    for each in _passes(plan):
        each.apply(Context(), copy)
    copy.verify()
    spent = round(time.process_time() - began, 1)
    work = work_share(module, copy)
    if work == 1.0:
        return Tried(plan, "cuts nothing: every device would do everything", seconds=spent)
    return Tried(plan, "", round(work, 3), round(parameter_share(module, copy), 3), spent)


def _passes(plan: str) -> list[ModulePass]:
    from distir.passes.apply_sharding import ApplyShardingPass
    from distir.passes.dtp_parallelize import DtpParallelizePass
    from distir.passes.ilp_shard import IlpShardPass

    tensor, stages, mesh = PLANS
    passes: dict[str, list[ModulePass]] = {
        tensor: [DtpParallelizePass(dp=2, tp=2)],
        stages: [DtpParallelizePass(dp=2, pp=2, microbatches=2)],
        mesh: [IlpShardPass(mesh="dp=2,tp=2", divide=True), ApplyShardingPass()],
    }
    return passes[plan]


def _commands(module: ModuleOp, file: str, plans: Sequence[dict[str, Any]]) -> list[str]:
    """With the plan that leaves a device least to do, of those that were made."""
    from distir.tools.commands.capacity import available_bytes, execution_bytes

    made = sorted((p for p in plans if p["work"] is not None), key=lambda p: (round(p["work"], 1), p["parameters"]))
    if not made:
        return [shell("distir", "simulate", file, "--machine", MACHINE)]
    out = f"{file.removesuffix('.mlir')}_4.mlir"
    found = [shell("distir-opt", file, "-p", made[0]["plan"], "-o", out)]
    free = available_bytes()
    if free is None or execution_bytes(module, 8) < free / 8:
        found.append(shell("distir", "verify", file, out))
    found.append(shell("distir", "simulate", out, "--machine", MACHINE))
    if made[0]["plan"].startswith("dtp-parallelize"):
        found.append(shell("distir", "search", file, "--machine", MACHINE, "--devices", "4", "--top", "3"))
    return found
