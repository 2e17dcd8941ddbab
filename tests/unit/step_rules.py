"""The rules of every operator of training steps, against the executor of `shard_executor`.

    python -m tests.unit.step_rules [-v] [NAME ...]

A step is run by the reference executor, on arrays of doubles if it is of torch; of its operations that differ in operator, properties or shapes, the
first is taken with the operands that it had. Its rule is discovered, and the op is run whole and in two and three uneven shards:
on those operands, on fresh floats in their place, and, where a factor of the rule is too short for uneven shards, on an op three
times as large in that factor. Prints every rule that does not hold. Models of `transformers` need the extra `models`, `jax` needs
the extra `jax`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation

from distir.dialects.sharding import Rule
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.reference import Reference, run_operator
from distir.interpreters.weights import weights_of
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine.instances import factor_extent
from distir.passes.shardcombine.probe_op import operand_name
from distir.passes.shardcombine_annotate import is_operator
from tests.unit.shard_executor import Tally, fresh, numbers_of, violations, with_sizes

ROOT = Path(__file__).parents[2]
TRANSFORMERS = ("gpt2", "llama", "bert", "vit", "resnet", "mixtral")
AS_DECLARED = ("jax",)
"""Steps that run in the types that they declare: what JAX computes of shards, whose shapes an op does not declare, is in those."""
DOUBLE = np.dtype(np.float64)
_SHORT, _RATIO = 4, 3
"""A factor that has fewer equal blocks is tried at so many times its extent too."""

Step = tuple[ModuleOp, dict[str, Any]]
"""A program and its inputs."""


@dataclass
class Outcome(Tally):
    """Over classes of operators. Of those without a rule, nothing can be cut and nothing partial passes."""

    classes: int = 0
    operators: set[str] = field(default_factory=set[str])
    enlarged: int = 0
    """Ops that were tried at a larger size."""


# --- steps ---


def mlp() -> Step:
    """Three layers with AdamW."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 8), nn.GELU(), nn.Linear(8, 5)).double()
    example = torch.randn(7, 6, dtype=torch.float64), torch.randint(0, 5, (7,))
    return _trained(model, nn.functional.cross_entropy, lambda p: torch.optim.AdamW(p, lr=0.01), example)


def convolutions() -> Step:
    """Convolutions of all kinds, batch and group norm, poolings, with momentum. A bias in front of a norm would have a gradient
    of nothing but rounding."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    layers += [nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4), nn.GroupNorm(4, 8), nn.SiLU(), nn.AvgPool2d(2)]
    model = nn.Sequential(*layers, nn.Conv2d(8, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).double()
    example = torch.randn(7, 3, 20, 16, dtype=torch.float64), torch.randint(0, 5, (7,))
    return _trained(model, nn.functional.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), example)


def gat() -> Step:
    """Two layers of graph attention."""
    import torch

    from benchmarks.training_workloads import gat_step

    module = gat_step(9, 8, 4, classes=5, layers=2)
    adjacency = (torch.rand(9, 9) + torch.eye(9) > 0.5).double().numpy()
    return module, _drawn(module, adjacency=adjacency)


def gpt() -> Step:
    """Two blocks in plain torch."""
    from benchmarks.gpt_training import gpt_step

    module = gpt_step(2, width=12, heads=3, vocabulary=17, batch=4, sequence=7)
    return module, _drawn(module)


def of_transformers(name: str) -> Step:
    """A model of the benchmark of `transformers`, in training mode where that has batch norm."""
    from benchmarks.pytorch_models import in_float64, optimizer, per_element

    model, data = in_float64(name)
    return _trained(model, per_element, optimizer, data[0])


def transformer_in_jax() -> Step:
    """The example's training step."""
    import jax

    from distir.frontends.jax import import_step

    example = run_path(str(ROOT / "examples" / "transformer_jax.py"))
    arguments = example["arguments"](layers=1, width=12, heads=3, vocabulary=17, batch=4, length=7)
    module = import_step(example["train"], arguments)
    names = [port.name for port in arguments_of(entry_function(module))]
    return module, dict(zip(names, map(np.asarray, jax.tree.leaves(arguments)), strict=True))


STEPS: dict[str, Callable[[], Step]] = {
    "mlp": mlp,
    "convolutions": convolutions,
    "gat": gat,
    "gpt": gpt,
    **{name: partial(of_transformers, name) for name in TRANSFORMERS},
    "jax": transformer_in_jax,
}


def _trained(model: Any, loss: Any, optimizer: Any, example: Any) -> Step:
    from distir.frontends.pytorch import import_step, training_step

    module = import_step(training_step(model, loss, optimizer), example)
    inputs, given = dict(weights_of(module)), iter(tensor.numpy() for tensor in example)
    for port in arguments_of(entry_function(module)):
        if port.name not in inputs:
            inputs[port.name] = next(given)
    return module, inputs


def _drawn(module: ModuleOp, **given: Any) -> dict[str, Any]:
    """An array for every argument: normal floats, small indices."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {}
    for port in arguments_of(entry_function(module)):
        shape, is_float = port.type.get_shape(), "f" in str(port.type.element_type)
        inputs[port.name] = rng.standard_normal(shape) if is_float else rng.integers(0, 5, shape)
    return inputs | given


# --- classes ---


def classes(module: ModuleOp, inputs: dict[str, Any], floats: Any) -> Iterator[tuple[Operation, list[Any]]]:
    """The first of all operations that agree in operator, properties, types and wiring, with its operands in the step."""
    from distir.interpreters.global_arrays import Site, distribute

    found: dict[Any, tuple[Operation, list[Any]]] = {}

    def recorded(op: Operation, operands: Sequence[Any]) -> Any:
        if is_operator(op):
            wiring = [(list(op.operands).index(value), str(value.type)) for value in op.operands]
            constants = [str(v.owner) for v in op.operands if isinstance(v.owner, Operation) and not v.owner.operands]
            key = op.name, str(sorted(op.properties.items())), str(wiring), str(constants), *map(str, op.result_types)
            found.setdefault(key, (op, list(operands)))
        return run_operator(op, operands, floats)

    function = entry_function(module)
    sites = [Site(0, port) for port in arguments_of(function)]
    walk = Reference.of(module, floats)
    walk.default = recorded
    with np.errstate(all="ignore"):
        walk.call("main", tuple(distribute(sites, inputs, floats)))
    yield from found.values()


def enlarged(op: Operation, rule: Rule, operands: Sequence[Any]) -> tuple[Operation, list[Any]] | None:
    """The op with every factor that is short made longer, on its operands repeated; None if there are none."""
    shapes = [np.shape(o) for o in operands], [getattr(r.type, "get_shape", tuple)() for r in op.results]
    sizes: dict[tuple[str, int], int] = {}
    for name, position in rule.sizes:
        if name in op.properties:
            sizes[name, position] = numbers_of(op.properties[name])[position]
        for i, operand in enumerate(operands):
            if operand_name(op, i) == name:
                sizes[name, position] = int(operand.reshape(-1)[position])
    extents = {factor: factor_extent(rule, factor, *shapes, sizes) or 0 for factor in rule.factors}
    short = [f for f, extent in extents.items() if 1 < extent < _SHORT and f not in rule.windowed]
    local, larger = list(operands), op
    for factor in short:
        for i, dims in enumerate(rule.inputs):
            for d, dim in enumerate(dims):
                if factor in dim.factors:
                    local[i] = np.concatenate([local[i]] * _RATIO, d)
        larger, local = with_sizes(larger, local, rule, factor, _RATIO, 1)
    if not short:
        return None
    block = Block(arg_types=[TensorType(v.type.element_type, np.shape(a)) if isinstance(v.type, TensorType) else v.type
                             for v, a in zip(op.operands, local, strict=True)])  # fmt: skip
    first = [list(op.operands).index(value) for value in op.operands]
    made = type(op).create(
        operands=[block.args[i] for i in first],
        result_types=op.result_types,
        properties=dict(larger.properties),
        regions=[region.clone() for region in op.regions],
    )
    return made, local


def check(
    step: Step, floats: Any, outcome: Outcome, discovery: Discovery, select: Callable[[str], bool] = lambda name: True
) -> None:
    rng, run = np.random.default_rng(0), partial(run_operator, floats=floats)
    for op, operands in classes(*step, floats):
        if not select(op.name):
            continue
        rule, before = discovery.rule(op), outcome.factors + outcome.windows + outcome.partials
        outcome.classes += 1
        outcome.operators.add(op.name)
        kept = discovery.domains.kept(op, operands)
        drawn = [fresh(operand, rng) for operand in operands]
        for i, integers in discovery.domains.kept(op, drawn).items():
            drawn[i] = integers
        for arrays in (operands, drawn):
            outcome.add(op.name, rule, violations(op, rule, arrays, rng, run))
        if not kept and (larger := enlarged(op, rule, operands)) is not None:
            made, arrays = larger
            outcome.enlarged += 1
            outcome.add(f"{op.name}, enlarged", rule, violations(made, rule, [fresh(a, rng) for a in arrays], rng, run))
        if outcome.factors + outcome.windows + outcome.partials == before:
            types = ", ".join(str(value.type) for value in op.operands)
            outcome.without.append(f"{op.name} {types}: {rule}")


def measure(names: Sequence[str], select: Callable[[str], bool] = lambda name: True) -> Outcome:
    """What came of these steps; a class that two of them have is counted in both."""
    outcome, discovery = Outcome(), Discovery(InterpreterDomains())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            check(STEPS[name](), None if name in AS_DECLARED else DOUBLE, outcome, discovery, select)
    return outcome


def main(names: Sequence[str]) -> None:
    verbose, names = "-v" in names, [name for name in names if name != "-v"]
    for name in names or STEPS:
        start = time.process_time()
        outcome = measure([name])
        for line in (*outcome.without, *outcome.false) if verbose else outcome.false:
            print(line)
        print(
            f"{name}: {outcome.classes} classes of {len(outcome.operators)} operators; {outcome.factors} factors, "
            f"{outcome.windows} with a halo, {outcome.offsets} with an offset, {outcome.partials} partials in 2 and 3 "
            f"shards; {outcome.enlarged} enlarged; {len(outcome.without)} without a rule to try; "
            f"{len(outcome.false)} do not hold; {time.process_time() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
