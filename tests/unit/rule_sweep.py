"""Rules of operators at extreme numbers, against the executor of `shard_executor`.

    python -m tests.unit.rule_sweep [aten] [onnx] [jax] [--seed N] [--seconds S] [--most N] [--only PREFIX] [--json]

Instances are not drawn as discovery draws: primitives of JAX, calls of torch's own samples, and the node tests of ONNX, with one or two of
their numbers, lists, extents, indices, types or operands changed (`changed_calls`). Each is asked for its rule and run whole and in two and three uneven shards in doubles, on its own operands, on
others, on larger ones and on whole numbers; then as a program that `apply-sharding` lowers, by strategies that the rule allows on meshes of two and
three devices. Prints every rule that does not hold, and every operator that crashes or is slow."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, helper, numpy_helper
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from distir.dialects.errors import DistirError
from distir.dialects.sharding import MeshOp, Rule, RuleAttr, StrategyAttr
from distir.frontends.onnx import import_model
from distir.interpreters import isolation, reference
from distir.interpreters.mixed import infer
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import options
from distir.passes.shardcombine import discovery as discovery_module
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine_annotate import is_operator
from tests.unit.aten_instances import LARGEST, Call, operation, recorded
from tests.unit.changed_calls import changed, other_list, other_number, other_operands
from tests.unit.jax_instances import of_jax
from tests.unit.node_rules import single_operator_tests, variants
from tests.unit.shard_executor import agree, violations

Instance = tuple[Operation, Sequence[Any]]
"""An operation with operands on which it runs."""
_SLOW_SECONDS = 30
_STRATEGIES = 4
"""Of one operation on one mesh, that are lowered."""


@dataclass
class Outcome:
    """What was asked: how many instances, of how many operators, factors and partial operands that were run, and what went wrong."""

    instances: int = 0
    operators: Counter[str] = field(default_factory=Counter[str])
    tried: int = 0
    lowered: int = 0
    """Programs that were lowered and run."""
    refused: int = 0
    """Instances that the operator itself does not accept, or on which it crashes."""
    false: list[str] = field(default_factory=list[str])
    without: list[str] = field(default_factory=list[str])
    """Operators that have no rule because they crash or take too long."""
    slow: list[str] = field(default_factory=list[str])


class _InThisProcess(InterpreterDomains):
    def is_forked(self, op: Operation) -> bool:
        return False


# --- instances ---


def of_aten(rng: np.random.Generator, only: str) -> Iterator[tuple[str, Callable[[], Instance]]]:
    """Calls as they were recorded, then changed ones, without end."""
    calls = [call for call in recorded(12, 8) if call.name.startswith(only)]
    by_name: dict[str, list[Call]] = {}
    for call in calls:
        by_name.setdefault(call.name, []).append(call)
    while by_name:
        for name in rng.permutation(sorted(by_name)):
            call = by_name[name][int(rng.integers(len(by_name[name])))]
            yield name, partial(operation, changed(call, rng))


def of_onnx(rng: np.random.Generator, only: str) -> Iterator[tuple[str, Callable[[], Instance]]]:
    cases = [(name, model, inputs) for case in single_operator_tests() for name, model, inputs in variants(case)]
    by_operator: dict[str, list[Any]] = {}
    for case in cases:
        operator = case[1].graph.node[0].op_type
        if f"onnx.{operator}".startswith(only or "onnx"):
            by_operator.setdefault(operator, []).append(case)
    while by_operator:
        for operator in rng.permutation(sorted(by_operator)):
            _, model, inputs = by_operator[operator][int(rng.integers(len(by_operator[operator])))]
            other = other_operands(inputs, rng) if rng.random() < 0.4 else inputs
            yield f"onnx.{operator}", partial(imported, _changed_model(_on(model, other), rng), other)


def _on(model: ModelProto, inputs: Sequence[Any]) -> ModelProto:
    """The model with inputs of these shapes."""
    found = ModelProto()
    found.CopyFrom(model)
    for value, array in zip(found.graph.input, inputs, strict=False):
        for dim, extent in zip(value.type.tensor_type.shape.dim, getattr(array, "shape", ()), strict=False):
            dim.dim_value = extent
    return found


def _changed_model(model: ModelProto, rng: np.random.Generator) -> ModelProto:
    """With one or two attributes or constant integers changed."""
    found = ModelProto()
    found.CopyFrom(model)
    (node,) = found.graph.node
    extents = [d.dim_value for v in found.graph.input for d in v.type.tensor_type.shape.dim if d.dim_value > 1]
    constants = [i for i in found.graph.initializer if numpy_helper.to_array(i).dtype.kind in "iu"]
    choices = [*range(len(node.attribute)), *(-1 - i for i in range(len(constants)))]
    for choice in rng.choice(choices, min(len(choices), int(rng.integers(1, 3))), replace=False) if choices else ():
        if choice < 0:
            array = np.array(numpy_helper.to_array(constants[-1 - choice]))
            if array.size:
                place = int(rng.integers(array.size))
                number = other_number(int(array.reshape(-1)[place]), extents, rng)
                limits = np.iinfo(array.dtype)
                array.reshape(-1)[place] = np.clip(number, limits.min, limits.max)
                constants[-1 - choice].CopyFrom(numpy_helper.from_array(array, constants[-1 - choice].name))
            continue
        attribute = node.attribute[int(choice)]
        value = helper.get_attribute_value(attribute)
        if isinstance(value, int | float):
            attribute.CopyFrom(helper.make_attribute(attribute.name, other_number(value, extents, rng)))
        elif isinstance(value, list | tuple) and value and isinstance(value[0], int | float):
            values = [*value]
            if rng.random() < 0.3 and isinstance(value[0], int):
                attribute.CopyFrom(
                    helper.make_attribute(attribute.name, other_list(value, rng), attr_type=attribute.type)
                )
                continue
            place = int(rng.integers(len(values)))
            values[place] = other_number(values[place], extents, rng)
            attribute.CopyFrom(helper.make_attribute(attribute.name, values))
    for value in found.graph.output:
        value.type.tensor_type.ClearField("shape")
    return found


def imported(model: ModelProto, inputs: Sequence[Any]) -> Instance:
    module = import_model(model)
    known = infer(module)
    (function,) = (f for f in module.ops if isinstance(f, FuncOp))
    values: dict[Any, Any] = dict(zip(function.args, inputs, strict=False))
    domains = InterpreterDomains()
    for op in function.body.block.ops:
        if op.dialect_name() == "func":
            break
        operands = [values.get(v) for v in op.operands]
        if is_operator(op):
            for result in op.results:
                if isinstance(type_ := known.get(result), TensorType):
                    Rewriter.replace_value_with_new_type(result, type_)
            return op, operands
        values.update(zip(op.results, domains.evaluate(op, operands), strict=True))
    raise ValueError("no operator")


# --- checks ---


def accepted(instance: Callable[[], Instance]) -> str:
    """A text, if the operator runs."""
    op, operands = instance()
    InterpreterDomains().evaluate(op, operands)
    return "runs"


def asked(instance: Callable[[], Instance], seed: int) -> str:
    """What came out of one instance, as text; empty if the operator does not accept it."""
    rng, domains = np.random.default_rng(seed), _InThisProcess()
    try:
        op, operands = instance()
        wholes, kept = domains.evaluate(op, operands), domains.kept(op, operands)
    except Exception:  # a gradient may take numbers that the operator that it is the gradient of does not
        return ""
    arrays = [array for array in (*operands, *wholes) if isinstance(array, np.ndarray)]
    if not arrays or max(array.size for array in arrays) > 50 * LARGEST:
        return ""
    start = time.process_time()
    rule = Discovery(domains).rule(op)
    seconds = time.process_time() - start
    false, tried = list[str](), 0
    for number in range(5):
        drawn = {
            value: _redrawn(array, 0 if isinstance(value.owner, Operation) else number, rng)
            for value, array in zip(op.operands, operands, strict=True)
        }  # constants (the scales of a resize) stay what they are: the rule is theirs
        given = [drawn[value] for value in op.operands]
        try:
            for i, array in domains.kept(op, given).items():
                given[i] = array
            found = violations(op, rule, given, rng)
        except Exception:
            continue
        false += found.violations
        tried += found.factors + found.windows + found.offsets + found.partials
    made, wrong = lowered(op, rule, [kept.get(i, array) for i, array in enumerate(operands)], rng)
    false += wrong
    text = f"{op.name} {dict(op.properties)} on {[getattr(a, 'shape', None) for a in operands]}: {rule}: {false[:2]}"
    return json.dumps({"false": text if false else "", "tried": tried, "seconds": seconds, "lowered": made})


def lowered(op: Operation, rule: Rule, operands: Sequence[Any], rng: np.random.Generator) -> tuple[int, list[str]]:
    """How many programs of this operation alone ran in shards, by some of the strategies that its rule allows on two and three devices, and
    what they computed that it does not."""
    if op.regions:
        return 0, []
    whole, inputs = _program(op, rule, operands)
    try:
        expected = reference.run(whole, inputs, dtype=np.float64)
    except DistirError:
        return 0, []
    made, wrong = 0, list[str]()
    for size in (2, 3):
        (sharded,) = (each for each in whole.walk() if "dist.rule" in each.attributes)
        possible = options(sharded, size, [], uneven=True, overlapping=True)[1:]
        for i in rng.choice(len(possible), min(len(possible), _STRATEGIES), replace=False) if possible else ():
            option, module = possible[int(i)], whole.clone()
            (placed,) = (each for each in module.walk() if "dist.rule" in each.attributes)
            if Mesh((("a", size),), uneven=True).conflict((*option.operands, *option.results)[:1]) is not None:
                continue
            placed.attributes["dist.strategy"] = StrategyAttr.of("mesh", {"a": option.choice})
            assert module.body.block.first_op is not None
            module.body.block.insert_op_before(MeshOp("mesh", {"a": size}), module.body.block.first_op)
            what = f"lowered by {option.choice} over {size}"
            try:
                ApplyShardingPass().apply(Context(), module)
                module.verify()
                found = reference.run(module, inputs, dtype=np.float64)
            except DistirError as error:
                if "differ" in str(error) or "disagree" in str(error):
                    wrong.append(f"{what}: {error}")
                continue
            except Exception as error:
                wrong.append(f"{what}: {type(error).__name__}: {error}")
                continue
            made += 1
            scale = max(
                (float(np.nanmax(np.abs(a))) for a in inputs.values() if a.dtype.kind == "f" and a.size), default=0
            )
            wrong += [f"{what}: {name} differs" for name, a in expected.items() if not agree(found[name], a, scale)]
    return made, wrong


def _program(op: Operation, rule: Rule, operands: Sequence[Any]) -> tuple[ModuleOp, dict[str, Any]]:
    """A module whose entry does nothing but this operation, which has this rule, and the entry's inputs."""
    given = {
        value: array
        for value, array in zip(op.operands, operands, strict=True)
        if not (isinstance(value.owner, Operation) and not value.owner.operands)
    }
    results = [result for result in op.results if isinstance(result.type, TensorType)]
    main = FuncOp("main", ([value.type for value in given], [result.type for result in results]))
    values: dict[SSAValue, SSAValue] = dict(zip(given, main.body.block.args, strict=True))
    for value in op.operands:
        if value not in values:
            assert isinstance(value.owner, Operation)
            copy = value.owner.clone()
            main.body.block.add_op(copy)
            values |= dict(zip(value.owner.results, copy.results, strict=True))
    copy = op.clone(values)
    copy.attributes["dist.rule"] = RuleAttr(rule)
    main.body.block.add_ops([copy, ReturnOp(*(copy.results[result.index] for result in results))])
    for kind, count in (("arg_attrs", len(given)), ("res_attrs", len(results))):
        names = [DictionaryAttr({"dist.name": StringAttr(f"{kind[0]}{i}")}) for i in range(count)]
        main.properties[kind] = ArrayAttr(names)
    return ModuleOp([main]), {f"a{i}": array for i, array in enumerate(given.values())}


def _redrawn(array: Any, number: int, rng: np.random.Generator) -> Any:
    """Floats as they are, as normal numbers, large ones, whole ones, and small ones, all in doubles: the addends of a value are not its
    addends when they are rounded."""
    if not isinstance(array, np.ndarray | np.floating) or (array.dtype.kind != "f" and "float" not in array.dtype.name):
        return array
    if number == 0:
        return np.nan_to_num(array.astype(np.float64), posinf=3.0, neginf=-3.0)
    scale = (1.0, 1.0, 200.0, 0.0, 1e-2)[number]
    drawn = (
        rng.integers(-2, 3, array.shape).astype(np.float64) if not scale else scale * rng.standard_normal(array.shape)
    )
    return np.asarray(np.abs(drawn) + 0.1 if array.size and array.min() > 0 and scale else drawn)


def sweep(
    instances: Iterator[tuple[str, Callable[[], Instance]]], seconds: float, most: int = 10**9, batch: int = 40
) -> Outcome:
    """As many instances as fit in the CPU time, each in a fork with limits."""
    outcome, end = Outcome(), sum(os.times()[:4]) + seconds
    discovery_module.CPU_SECONDS = limit = 2.0 * _SLOW_SECONDS
    while sum(os.times()[:4]) < end and outcome.instances < most:
        chosen = [next(instances) for _ in range(min(batch, most - outcome.instances))]
        questions = [partial(asked, make, number) for number, (_, make) in enumerate(chosen)]
        for (name, make), found in zip(chosen, isolation.answers(questions, cpu_seconds=limit), strict=True):
            outcome.instances += 1
            if isinstance(found, isolation.NoAnswer):
                if found.crashed:
                    (alone,) = isolation.answers([partial(accepted, make)])
                    if isinstance(alone, isolation.NoAnswer):
                        outcome.refused += 1
                        continue
                outcome.without.append(f"{name}: {found.reason}")
                if found.raised:
                    outcome.false.append(f"{name}: {found.reason}")
                continue
            if not found:
                outcome.refused += 1
                continue
            told = json.loads(found)
            outcome.operators[name] += 1
            outcome.tried += told["tried"]
            outcome.lowered += told["lowered"]
            outcome.false += [told["false"]] if told["false"] else []
            outcome.slow += [f"{name}: {told['seconds']:.0f} s"] if told["seconds"] > _SLOW_SECONDS else []
    return outcome


SOURCES = {"aten": of_aten, "onnx": of_onnx, "jax": of_jax}


def swept(dialect: str, seed: int, seconds: float, most: int) -> Outcome:
    """A sweep in a process of its own: a fork of one in which JAX has compiled anything waits for threads that it has not."""
    numbers = ["--seed", str(seed), "--seconds", str(seconds), "--most", str(most)]
    given = [sys.executable, "-m", __name__, dialect, *numbers, "--json"]
    ended = subprocess.run(given, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True)
    return Outcome(**json.loads(ended.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description="rules at extreme numbers")
    parser.add_argument("dialects", nargs="*", choices=[*SOURCES, []], default=["aten", "onnx"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="CPU seconds for each dialect")
    parser.add_argument("--most", type=int, default=10**9, help="instances of each dialect")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true", help="print what came out as one line of JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for dialect in options.dialects:
        with np.errstate(all="ignore"):
            instances = SOURCES[dialect](np.random.default_rng(options.seed), options.only)
            outcome = sweep(instances, options.seconds, options.most)
        if options.json:
            print(json.dumps(vars(outcome)))
            continue
        for line in outcome.false:
            print("false:", line)
        for line, count in Counter(outcome.without).most_common():
            print("no answer:", line, count)
        for line in outcome.slow:
            print("slow:", line)
        accepted = outcome.operators.total()
        print(
            f"{dialect}: {outcome.instances} instances, {accepted} accepted, of {len(outcome.operators)} operators; "
            f"{outcome.tried} factors and partial operands run, {outcome.lowered} programs lowered and run; {len(outcome.false)} do not hold"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
