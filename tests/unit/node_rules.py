"""The rules of the single-operator node tests that the onnx package ships, against the executor of `shard_executor`.

    python -m tests.unit.node_rules [NAME ...]

prints every rule that does not hold. Each test is taken twice if it has integer operands of rank 0 or 1: with those as
data, and as constants, which is how real models give sizes, axes and pads.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp

from distir.frontends.onnx import import_model
from distir.interpreters.mixed import infer
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine_annotate import is_operator
from tests.unit.shard_executor import Tally, fresh, violations


@dataclass
class Outcome(Tally):
    """Over node tests. Those without a rule are of sequences and strings, of one element, random."""

    tests: int = 0


def single_operator_tests(select: Callable[[str], bool] = lambda name: True) -> list[Any]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return [case for case in cases if len(case.model.graph.node) == 1 and select(case.name)]


def variants(case: Any) -> Iterator[tuple[str, ModelProto, list[Any]]]:
    """The model with its inputs, as it is, and with integers of rank 0 or 1 as constants."""
    inputs = [numpy_helper.to_array(x) if isinstance(x, TensorProto) else x for x in case.data_sets[0][0]]
    yield case.name, case.model, inputs
    names = [value.name for value in case.model.graph.input]
    constant = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.ndim <= 1]
    if not constant or len(constant) == len(inputs):
        return
    model = ModelProto()
    model.CopyFrom(case.model)
    for i in constant:
        (value,) = (v for v in model.graph.input if v.name == names[i])
        model.graph.input.remove(value)
        model.graph.initializer.append(numpy_helper.from_array(inputs[i], names[i]))
    yield f"{case.name} (constants)", model, [x for i, x in enumerate(inputs) if i not in constant]


def check(name: str, model: ModelProto, inputs: Sequence[Any], discovery: Discovery, outcome: Outcome) -> None:
    outcome.tests += 1
    module = import_model(model)
    infer(module)
    (function,) = (f for f in module.ops if isinstance(f, FuncOp))
    rng, ways = np.random.default_rng(0), 0
    for arrays in (inputs, [fresh(x, rng) for x in inputs]):
        values: dict[Any, Any] = dict(zip(function.args, arrays, strict=False))
        for op in function.body.block.ops:
            if op.dialect_name() == "func":
                continue
            operands = [values.get(v) for v in op.operands]
            if is_operator(op) and all(
                isinstance(v.type, TensorType) or o is None for v, o in zip(op.operands, operands, strict=True)
            ):
                try:
                    rule = discovery.rule(op)
                except Exception as error:
                    outcome.false.append(f"{name}: discovery raised {type(error).__name__} {error}")
                    continue
                tried = violations(op, rule, operands, rng)
                ways += tried.factors + tried.partials
                outcome.add(name, rule, tried)
            values.update(zip(op.results, discovery.domains.evaluate(op, operands), strict=True))
    if not ways:
        outcome.without.append(name)


def measure(select: Callable[[str], bool] = lambda name: True) -> Outcome:
    outcome, discovery = Outcome(), Discovery(InterpreterDomains())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in single_operator_tests(select):
            for name, model, inputs in variants(case):
                try:
                    check(name, model, inputs, discovery, outcome)
                except Exception as error:  # an op that the reference does not run: sequences, random
                    outcome.without.append(f"{name}: {type(error).__name__} {error}")
    return outcome


def main(names: Sequence[str]) -> None:
    verbose, names = "-v" in names, [name for name in names if name != "-v"]
    start = time.process_time()
    outcome = measure(lambda name: not names or any(part in name for part in names))
    for line in (*outcome.without, *outcome.false) if verbose else outcome.false:
        print(line)
    print(f"{outcome.tests} programs, {outcome.factors} factors, {outcome.partials} partials in 2 and 3 shards")
    print(
        f"{len(outcome.without)} without a rule to try; {len(outcome.false)} do not hold; {time.process_time() - start:.0f} s"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
