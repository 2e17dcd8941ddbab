"""The tensor axis as an integer linear program: one option per distinct operation, conversions charged once per value and
state, repeated bodies tied by being one function, operations weighted by how often they run.

The objective is communication time in seconds (latency and bytes, from a cost model) with the bytes of values at one row
of the batch, so that the choice does not depend on the batch size, and the time of going over parameters that are held whole; a small tie-break prefers sharded parameters,
few conversions and few pieces. Formulation: for each use of a value, continuous flows from its produced to its needed state
have both choices as marginals (the tight form of their product), and a conversion is paid once, by the largest of its flows
over the uses. On the training steps of `benchmarks/pytorch_models.py` the linear relaxation is integral: no branching. `solve`
asks the solver only where elimination (`tensor_network`), of the same choices and costs, finds no assignment at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, Partial, Replicated, Sharded, State, Windowed
from distir.interpreters.held import HeldOp
from distir.interpreters.walk import values_read
from distir.passes.distribution.conversions import conversion_seconds
from distir.passes.distribution.space import TensorSpace, is_scattered, model_values
from distir.passes.distribution.tensor.tensor_network import (
    MICROSECONDS,
    TIE_BREAK,
    Plan,
    TensorNetwork,
    held_option,
    is_held,
    option_price,
    whole_prices,
)
from distir.passes.structure import argument_attributes, executions, functions, is_stated, result_attributes, text

States = dict[State, Any]
"""For each state, the linear expression that is 1 if it is chosen."""


@dataclass
class _Model:
    """The program under construction."""

    space: TensorSpace
    seconds: Callable[[str, int], float]
    problem: Any
    variables: dict[Operation, list[Any]] = field(default_factory=dict[Operation, list[Any]])
    arguments: dict[SSAValue, States] = field(default_factory=dict[SSAValue, States])
    results: dict[str, list[States]] = field(default_factory=dict[str, list[States]])
    cost: list[Any] = field(default_factory=list[Any])
    ties: list[Any] = field(default_factory=list[Any])
    shared: dict[tuple[int, ...], States] = field(default_factory=dict[tuple[int, ...], States])
    flows: dict[tuple[int, ...], tuple[States, list[States], SSAValue, bool]] = field(
        default_factory=dict[tuple[int, ...], tuple[States, list[States], SSAValue, bool]]
    )
    weights: dict[tuple[int, ...], int] = field(default_factory=lambda: defaultdict(int))
    kept: list[object] = field(default_factory=list[object])
    count: int = 0

    def binary(self) -> Any:
        self.count += 1
        return self.problem.add_variable(f"x{self.count}", 0, 1, cat="Binary")

    def flow(self) -> Any:
        self.count += 1
        return self.problem.add_variable(f"z{self.count}", 0, 1)


def solve(space: TensorSpace, rows: int, cut: Set[SSAValue], seconds: Callable[[str, int], float]) -> Plan:
    """The best plan for one row, so that it is the same for all batches. `rows` is the batch extent that the program was
    localised to, `cut` the values that grow with it; `seconds(kind, bytes)` the time of a collective over the axis. Raises
    DistirError if the solver finds none."""
    plan = TensorNetwork(space, rows, cut, seconds).best_plan()
    return plan or solve_program(space, rows, cut, seconds)


def solve_program(space: TensorSpace, rows: int, cut: Set[SSAValue], seconds: Callable[[str, int], float]) -> Plan:
    """The same by the integer program."""
    import pulp

    model = _Model(space, seconds, pulp.LpProblem("tensor_axis", pulp.LpMinimize))
    table = functions(space.module)
    counts = executions(space.functions, space.entry)
    prices, held = whole_prices(space, counts), model_values(space.functions, space.entry, table)
    for function in space.functions:
        _add_function(model, function, counts[function.sym_name.data], prices, held)
    _tie_updates(model)
    for key, (producer, consumers, value, is_model) in model.flows.items():
        bytes_ = _bytes(value) // rows if value in cut else _bytes(value)
        _add_flow(model, producer, consumers, bytes_, is_model, model.weights[key])
    model.problem += pulp.lpSum(model.cost) + pulp.lpSum(model.ties)
    model.problem.solve(pulp.HiGHS(msg=False, gapRel=0.0))
    if pulp.LpStatus[model.problem.status] != "Optimal":
        raise DistirError(
            f"no sharding of the program over {space.shards} devices exists ({pulp.LpStatus[model.problem.status]})"
        )
    chosen = {op: _argmax(zip(space.options[op], xs, strict=True)) for op, xs in model.variables.items()}
    chosen.update((v.op, held_option(_argmax(s.items()))) for v, s in model.arguments.items() if is_held(v))
    arguments = {v: _argmax(states.items()) for v, states in model.arguments.items() if isinstance(v, BlockArgument)}
    results = {name: [_argmax(states.items()) for states in found] for name, found in model.results.items()}
    return Plan(chosen, arguments, results, cast(float, pulp.value(pulp.lpSum(model.cost)) or 0.0) / MICROSECONDS)


def _argmax(pairs: Any) -> Any:
    return max(pairs, key=lambda pair: pair[1] if isinstance(pair[1], int) else (pair[1].value() or 0.0))[0]


def _add_function(
    model: _Model, function: FuncOp, count: int, prices: Mapping[SSAValue, float], held: Set[SSAValue]
) -> None:
    """Variables for the body's operations, states for its arguments and results, conversions between them."""
    producers: dict[SSAValue, States] = {}
    consumers: dict[SSAValue, list[States]] = defaultdict(list)
    returned: Sequence[SSAValue] = ()
    inputs: list[SSAValue] = list(function.body.block.args)
    for op in function.body.block.ops:
        if isinstance(op, ReturnOp):
            returned = list(op.operands)
        elif isinstance(op, HeldOp):
            inputs.append(op.output)
        elif isinstance(op, CallOp):
            name = op.callee.string_value()
            callee = functions(model.space.module)[name]
            for value, argument in zip(op.operands, callee.body.block.args, strict=True):
                consumers[value].append(model.arguments[argument])
            producers.update(zip(op.results, model.results[name], strict=True))
        else:
            _add_operation(model, op, producers, consumers)
    for argument in inputs:
        is_input = function is model.space.entry or is_held(argument)
        states = _argument_states(model, consumers[argument], is_input)
        model.arguments[argument] = producers[argument] = states
        if argument in prices:
            model.ties.append(prices[argument] * states.get(REPLICATED, 0))
    is_entry = function is model.space.entry
    for value in returned if is_entry else ():
        for state, chosen in producers[value].items():
            if is_scattered(state):
                model.problem += chosen == 0
    model.results[function.sym_name.data] = [
        producers[v] if is_entry else _result_states(model, producers[v], consumers[v]) for v in returned
    ]
    for value, needs in consumers.items():
        if needs and not all(need is producers[value] for need in needs):
            key = (id(producers[value]), *sorted(id(n) for n in needs), int(value in held))
            model.flows.setdefault(key, (producers[value], needs, value, value in held))
            model.weights[key] += 0 if is_stated(value) else count
    model.kept += [producers, consumers]  # flows are keyed by identity, so what they name must stay alive


def _add_operation(
    model: _Model,
    op: Operation,
    producers: dict[SSAValue, States],
    consumers: dict[SSAValue, list[States]],
) -> None:
    import pulp

    found = model.space.options[op]
    if len(found) == 1:
        xs: list[Any] = [1]
    else:
        xs = [model.binary() for _ in found]
        model.problem += pulp.lpSum(xs) == 1
    model.variables[op] = xs
    for option, x in zip(found, xs, strict=True):
        if len(found) > 1 and (extra := option_price(model.space, op, option)):
            model.ties.append(extra * x)
    for i, value in enumerate(values_read(op)):
        needs = _by_state([(option.operands[i], x) for option, x in zip(found, xs, strict=True)])
        if not (is_stated(value) and set(needs) == {REPLICATED}):
            consumers[value].append(needs)
    for i, result in enumerate(op.results):
        producers[result] = _by_state([(option.results[i], x) for option, x in zip(found, xs, strict=True)])


def _by_state(pairs: list[tuple[State, Any]]) -> States:
    import pulp

    grouped: dict[State, list[Any]] = defaultdict(list)
    for state, x in pairs:
        grouped[state].append(x)
    return {state: xs[0] if len(xs) == 1 else pulp.lpSum(xs) for state, xs in grouped.items()}


def _argument_states(model: _Model, needs: list[States], is_input: bool) -> States:
    """An argument with one consumer is whatever that consumer needs; otherwise it has a state of its own. Inputs of the
    program never arrive as addends (replicas could not tell theirs apart)."""
    import pulp

    distinct = list({id(n): n for n in needs}.values())
    addends = is_input and any(isinstance(state, Partial) for need in distinct for state in need)
    if len(distinct) == 1 and not addends:
        return distinct[0]
    key = (int(addends), *sorted(id(n) for n in distinct))
    if distinct and key in model.shared:
        return model.shared[key]
    candidates = dict.fromkeys([REPLICATED, *(state for n in distinct for state in n)])
    candidates = [s for s in candidates if not (addends and isinstance(s, Partial))]
    states: States = {state: model.binary() for state in candidates}
    model.problem += pulp.lpSum(states.values()) == 1
    if distinct:
        model.shared[key] = states
    return states


def _result_states(model: _Model, producer: States, consumers: list[States]) -> States:
    """A result leaves as it was produced, or as the body converted it for itself anyway."""
    import pulp

    candidates = dict.fromkeys([*producer, *(state for need in consumers for state in need)])
    if len(candidates) == 1 or all(need is producer for need in consumers):
        return producer
    states: States = {state: model.binary() for state in candidates}
    model.problem += pulp.lpSum(states.values()) == 1
    consumers.append(states)
    return states


def _bytes(value: SSAValue) -> int:
    from distir.interpreters.work import type_bytes

    return type_bytes(value.type)


def _tie_updates(model: _Model) -> None:
    """A result that updates an argument leaves in the argument's state."""
    entry = model.space.entry
    names = {
        text(a, "dist.name", ""): v for a, v in zip(argument_attributes(entry), entry.body.block.args, strict=True)
    }
    last = entry.body.block.last_op
    returned = list(last.operands) if last is not None else []
    for value, attributes, states in zip(
        returned, result_attributes(entry), model.results[entry.sym_name.data], strict=True
    ):
        argument = names.get(text(attributes, "dist.name", ""))
        if argument is not None and states is not model.arguments[argument]:
            key = (id(states), id(model.arguments[argument]))
            model.flows[key] = (states, [model.arguments[argument]], value, False)
            model.weights[key] += 1


def _add_flow(
    model: _Model,
    producer: States,
    consumers: list[States],
    whole: int,
    is_model: bool,
    weight: int,
) -> None:
    """Conversions of one value of so many bytes: each (from, to) is paid once however many consumers need it. A consumer's
    flows have the producer's choice and its own as marginals."""
    import pulp

    prices: dict[tuple[State, State], float] = {}
    for source in producer:
        for target in dict.fromkeys(state for need in consumers for state in need):
            if source != target and (is_scattered(source) or is_scattered(target)):
                continue
            seconds = conversion_seconds(source, target, whole, model.space.shards, model.seconds)
            if not is_model or seconds == 0:  # parameters are never communicated
                prices[source, target] = seconds
    distinct = list({id(need): need for need in consumers}.values())
    paid: dict[tuple[State, State], Any] = {}
    for need in distinct:
        flows = {(s, t): model.flow() for s, t in prices if t in need}
        for source, available in producer.items():
            model.problem += pulp.lpSum(z for (s, _), z in flows.items() if s == source) == available
        for target, wanted in need.items():
            model.problem += pulp.lpSum(z for (_, t), z in flows.items() if t == target) == wanted
        for (source, target), flow in flows.items():
            if source == target:
                continue
            if len(distinct) == 1:
                paid[source, target] = flow
                continue
            if (source, target) not in paid:
                paid[source, target] = model.flow()
            model.problem += flow <= paid[source, target]
    for (source, target), flow in paid.items():
        if seconds := prices[source, target]:
            model.cost.append(weight * seconds * MICROSECONDS * flow)
        model.ties.append(TIE_BREAK * 0.1 * weight * flow)


def describe(state: State) -> str:
    """A state in words, for messages."""
    match state:
        case Replicated():
            return "replicated"
        case Sharded(dim, pieces):
            return f"sharded on dim {dim}" + (f" in pieces {list(pieces)}" if len(pieces) > 1 else "")
        case Windowed(dim):
            return f"sharded on dim {dim} with a halo"
        case Partial(reduction):
            return f"partial {reduction}"
