"""What rules cut, for one or two calls of every operator that torch samples, that the node tests of ONNX have and that `jax_instances` draws: a
line for each operator in `rules/rule_record.txt`.

    python -m tests.unit.rule_record

writes that file, in five CPU minutes; with names of operators, it compares these with the file. A rule that is lost is no error anywhere: plans
are only slower. `tests/unit/rules/test_rule_coverage.py` finds the rules again and compares. A line has, for each call, the factors, by the dims of operands that they divide (`0.1+1.0`: dim 1 of operand 0
and dim 0 of operand 1) or the sizes; `halo` if shards overlap, `offset` if they need the start of their positions; and the operands that may be
partial (`sum(0,2)`)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from xdsl.dialects.builtin import TensorType

from distir.dialects.sharding import Rule
from distir.interpreters.isolation import NoAnswer, answers
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from tests.unit.aten_instances import operation, recorded
from tests.unit.jax_instances import seeded_calls
from tests.unit.node_rules import single_operator_tests, variants
from tests.unit.rule_sweep import Instance, imported

RECORD = Path(__file__).parent / "rules" / "rule_record.txt"
_CALLS = 2
"""Of each operator."""
_DRAWN = 16
"""Calls of each operator of JAX among which those are."""
_BETWEEN, _NOTHING = " | ", "-"
_SAMPLE_SECONDS = 60.0
"""That torch may take for the samples of one function: none takes as long, so what is sampled does not depend on the machine."""
_QUESTION_SECONDS = 120.0
_BATCH = 40
"""Questions to one fork: JAX keeps all that it compiles."""


@dataclass
class Differences:
    """From the record, a line for each operator."""

    lost: list[str] = field(default_factory=list[str])
    gained: list[str] = field(default_factory=list[str])


def calls() -> dict[str, list[Callable[[], Instance]]]:
    """By operator, the calls of most dims that are longer than one; of as many, the first, and those whose integers are constants."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    made: dict[str, list[tuple[int, Callable[[], Instance]]]] = {}
    for call in recorded(12, 8, _SAMPLE_SECONDS):
        shapes = [leaf.shape for leaf in tree_leaves((call.args, dict(call.kwargs))) if isinstance(leaf, torch.Tensor)]
        made.setdefault(call.name, []).append((_long_dims(shapes), partial(operation, call)))
    for case in single_operator_tests():
        as_data, *as_constants = variants(case)
        long_dims = _long_dims([x.shape for x in as_data[2] if isinstance(x, np.ndarray)])
        each = [(long_dims, partial(imported, model, inputs)) for _, model, inputs in (*as_constants, as_data)]
        made.setdefault(f"onnx.{case.model.graph.node[0].op_type}", []).extend(each)
    most = {name: sorted(each, key=lambda pair: -pair[0])[:_CALLS] for name, each in sorted(made.items())}
    found = {name: [make for _, make in each] for name, each in most.items()}
    drawn: dict[str, list[tuple[int, Callable[[], Instance]]]] = {}
    for name, arrays, make in seeded_calls(_DRAWN):
        drawn.setdefault(name, []).append((_long_dims([x.shape for x in arrays]), make))
    for name, each in sorted(drawn.items()):
        in_order = [make for _, make in sorted(each, key=lambda pair: -pair[0])]
        found[name] = [partial(_first_that_runs, in_order[i::_CALLS]) for i in range(_CALLS)]
    return found


def _first_that_runs(makes: Sequence[Callable[[], Instance]]) -> Instance:
    """The first that is an operation, accepts its operands and has elements of every result. Raises ValueError if there is none."""
    for make in makes:
        try:
            op, operands = make()
        except Exception:
            continue
        if all(not isinstance(type_, TensorType) or 0 not in type_.get_shape() for type_ in op.result_types):
            return op, operands
    raise ValueError("no call of it runs")


def _long_dims(shapes: Iterable[Iterable[int]]) -> int:
    return sum(extent > 1 for shape in shapes for extent in shape)


def parts(rule: Rule) -> list[str]:
    """The factors and partial operands of a rule, whatever the names of factors."""
    words = {factor: _factor(rule, factor) for factor in (*rule.factors, *rule.offsets)}
    partials = [
        f"{entry.reduction.value}({','.join(map(str, entry.operands))})"
        + (f"@{words[entry.factor]}" if entry.factor is not None else "")
        for entry in rule.partials
    ]
    return [*sorted(words.values()), *sorted(partials)]


def _factor(rule: Rule, factor: str) -> str:
    dims = [f"{i}.{d}" for i, dims in enumerate(rule.inputs) for d, dim in enumerate(dims) if factor in dim.factors]
    sizes = [f"{name}[{position}]" for (name, position), factors in rule.sizes.items() if factor in factors]
    text = "+".join(dims or sizes)
    return f"offset({text})" if factor in rule.offsets else f"halo({text})" if factor in rule.windowed else text


def _told(make: Callable[[], Instance]) -> str:
    op, _ = make()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return " ".join(parts(Discovery(InterpreterDomains()).rule(op)))


def found(operators: Mapping[str, Sequence[Callable[[], Instance]]]) -> Iterator[tuple[str, list[str]]]:
    """Of each operator, what the rule of each of its calls has; each is asked without what is known of others."""
    questions = [partial(_told, make) for makes in operators.values() for make in makes]
    batches = (questions[i : i + _BATCH] for i in range(0, len(questions), _BATCH))
    told = chain.from_iterable(answers(batch, cpu_seconds=_QUESTION_SECONDS) for batch in batches)
    for name, makes in operators.items():
        texts = [next(told) for _ in makes]
        yield name, ["" if isinstance(text, NoAnswer) else text for text in texts]


def read() -> dict[str, list[str]]:
    """The record: by operator, the words of each call."""
    lines = (line.split(": ") for line in RECORD.read_text().splitlines())
    return {name: ["" if text == _NOTHING else text for text in rest.split(_BETWEEN)] for name, rest in lines}


def differences(known: Mapping[str, list[str]], now: Iterable[tuple[str, list[str]]]) -> Differences:
    """What the rules of these operators have lost and gained. A factor that divides other dims is lost and gained."""
    result = Differences()
    for name, texts in now:
        for number, (before, after) in enumerate(zip_longest(known.get(name, ()), texts, fillvalue="")):
            was, is_ = Counter(before.split()), Counter(after.split())
            for counts, lines in ((was - is_, result.lost), (is_ - was, result.gained)):
                if counts:
                    lines.append(f"{name}, call {number}: {' '.join(counts.elements())} (now {after or _NOTHING})")
    return result


def among(names: Collection[str]) -> dict[str, list[Callable[[], Instance]]]:
    """The calls of these operators. An operator that has none has no calls."""
    known = calls()
    return {name: known.get(name, []) for name in names}


def compared(names: Collection[str]) -> Differences:
    """What the rules of these operators have lost and gained, asked in a process of its own: a fork of one in which JAX has compiled anything waits for
    threads that it has not."""
    given = [sys.executable, "-m", __name__, *names]
    ended = subprocess.run(given, cwd=RECORD.parents[3], stdout=subprocess.PIPE, text=True, check=True)
    return Differences(**json.loads(ended.stdout.splitlines()[-1]))


def main(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    if names:
        print(json.dumps(asdict(differences(read(), found(among(names))))))
        return
    texts = ((name, _BETWEEN.join(text or _NOTHING for text in each)) for name, each in found(calls()))
    lines = [f"{name}: {text}\n" for name, text in texts]
    RECORD.write_text("".join(lines))
    print(f"{len(lines)} operators")


if __name__ == "__main__":
    main(sys.argv[1:])
