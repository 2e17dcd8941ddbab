"""Searches for shardings: what a plan is said to cost is what its program takes in the simulator, the integer program finds the
optimum of all strategies, memory limits hold, and plans compute what the sequential program does."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, Builtin, DictionaryAttr, ModuleOp
from xdsl.dialects.func import Func
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.dialects.sharding import MeshOp, Sharded, ShardingAttr, StrategyAttr, Windowed
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.reference import run
from distir.interpreters.simulate import Simulation, simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.beam_shard import BeamShardPass
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import options
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.passes.sharding_search.beam import Beam
from distir.passes.sharding_search.choice_network import ChoiceNetwork
from distir.passes.sharding_search.explain import difference, explain, explanation, memory_lines
from distir.passes.sharding_search.integer_program import IntegerProgram
from distir.passes.sharding_search.least_memory import least_memory
from distir.passes.sharding_search.memory import footprint
from distir.passes.sharding_search.plans import Plan
from distir.passes.sharding_search.prices import Prices
from distir.passes.sharding_search.problem import Problem, build
from distir.passes.sharding_search.relaxation import Relaxation
from distir.passes.sharding_search.search import Result, best_plan, by_integer_program
from distir.passes.sharding_search.settings import write
from distir.passes.structure import argument_attributes, is_constant, shape_of
from tests.slow_machine import written
from tests.small_models import gpt2, mlp

MACHINE = "dgx-2"
PICOSECOND = 1e-12


def problem_of(module: ModuleOp, axes: tuple[tuple[str, int], ...], **restrictions: str) -> Problem:
    prices = Prices(Mesh(axes, uneven=True), load_machine(MACHINE))
    return build(module, "main", prices, parse_batch("", entry_function(module)), restrictions)


def lowered(problem: Problem, result: Result) -> tuple[ModuleOp, Simulation]:
    """The program of a plan, and what the simulator says of it."""
    write(problem, result)
    ApplyShardingPass().apply(Context(), problem.module)
    problem.module.verify()
    return problem.module, simulate(problem.module, MACHINE)


def agrees(simulation: Simulation, result: Result) -> bool:
    """Time to the picosecond; no device needs more memory than was counted."""
    assert round(simulation.makespan_seconds / PICOSECOND) == round(result.seconds / PICOSECOND)
    assert max(simulation.peak_memory_bytes.values()) <= result.memory.peak_bytes
    return max(simulation.peak_memory_bytes.values()) == result.memory.peak_bytes


# --- what is charged is what runs ---


@pytest.mark.parametrize(
    ("axes", "restrictions"),
    [((("tp", 2),), {"tp": "model"}), ((("dp", 2), ("tp", 2)), {"dp": "batch", "tp": "model"})],
    ids=str,
)
def test_gpt2_costs_what_its_program_takes_and_computes_the_same(
    axes: tuple[tuple[str, int], ...], restrictions: dict[str, str]
):
    model = gpt2(2)
    problem = problem_of(model.module.clone(), axes, **restrictions)
    result = best_plan(problem)
    assert result.gap == 0
    module, simulation = lowered(problem, result)
    assert agrees(simulation, result)
    found = run(module, model.inputs, dtype=np.float64)
    for name, expected in model.sequential(np.float64).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("limit", [6000, pytest.param(4500, marks=pytest.mark.long)])
def test_a_training_step_within_a_limit_of_memory(limit: int):
    """The MLP's 4 layers of 12 x 12 need 7108 bytes whole: half of the weights and less of the activations must go."""
    model = mlp()
    problem = problem_of(model.module.clone(), (("dp", 2),))
    result = best_plan(problem, limit)
    module, simulation = lowered(problem, result)
    assert agrees(simulation, result)
    assert result.memory.peak_bytes <= limit
    found = run(module, model.inputs, dtype=np.float64)
    for name, expected in model.sequential(np.float64).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-12)


def test_too_little_memory_says_what_is_needed():
    """y = x w of 64 x 64 f16 (8192 bytes each) over 2 devices: cut by rows or columns, two of the three are halved; cut in the
    middle, the two operands are, and the result is whole."""
    text = """func.func @main(%x: tensor<64x64xf16> {dist.name = "x", dist.role = "input"},
                              %w: tensor<64x64xf16> {dist.name = "w", dist.role = "parameter"}) -> tensor<64x64xf16> {
        %y = "onnx.MatMul"(%x, %w) : (tensor<64x64xf16>, tensor<64x64xf16>) -> tensor<64x64xf16>
        func.return %y : tensor<64x64xf16> }"""
    with pytest.raises(
        DistirError, match=r"no sharding fits; the smallest that one needs is 16384 bytes .*MatMul in @main"
    ):
        best_plan(problem_of(parsed(text), (("tp", 2),)), 1000)
    choices = ChoiceNetwork(problem_of(parsed(text), (("tp", 2),)))
    least = least_memory(choices, [choices.fastest() or []])
    assert least.is_proven
    assert least.memory.peak_bytes == 16384


# --- an oracle: every strategy, lowered and simulated ---


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Up to three operations on large matrices, whose sharding pays or does not."""
    n = draw(st.sampled_from([256, 4096]))
    type_ = f"tensor<{n}x{n}xf16>"
    values, lines = ["x"], []
    weights = 0
    for i in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["MatMul", "Relu", "Add", "Transpose", "MatMul"]))
        a, b = draw(st.sampled_from(values[-2:])), draw(st.sampled_from(values))
        if kind == "MatMul" and draw(st.booleans()):
            b, weights = f"w{weights}", weights + 1
        operands = [a, b] if kind in ("MatMul", "Add") else [a]
        types = ", ".join([type_] * len(operands))
        property_ = " <{perm = [1, 0]}>" if kind == "Transpose" else ""
        lines.append(f'%v{i} = "onnx.{kind}"({", ".join("%" + o for o in operands)}){property_} : ({types}) -> {type_}')
        values.append(f"v{i}")
    arguments = [f'%x: {type_} {{dist.name = "x", dist.role = "input"}}']
    arguments += [f'%w{i}: {type_} {{dist.name = "w{i}", dist.role = "parameter"}}' for i in range(weights)]
    body = "\n".join(lines)
    return f"func.func @main({', '.join(arguments)}) -> {type_} {{\n{body}\nfunc.return %{values[-1]} : {type_}\n}}"


def parsed(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    ShardcombineAnnotatePass().apply(context, module)
    return module


def strategies(module: ModuleOp, shards: int) -> Iterator[ModuleOp]:
    """The module with every combination of choices, and of states of arguments that several operations use."""
    ops = [op for op in entry_function(module).body.block.ops if op.operands and "dist.rule" in op.attributes]
    shared = [a for a in entry_function(module).body.block.args if a.uses.get_length() > 1]
    cuts: list[dict[str, Any]] = (
        [{}, *({"tp": Sharded(d, (n,))} for d, n in enumerate(shape_of(shared[0])))] if shared else [{}]
    )
    for choices in product(*(options(op, shards) for op in ops)):
        for states in product(cuts, repeat=len(shared)):
            copy = module.clone()
            main = entry_function(copy)
            copied: list[Operation] = [op for op in main.body.block.ops if op.operands and "dist.rule" in op.attributes]
            for op, option in zip(copied, choices, strict=True):
                op.attributes["dist.strategy"] = StrategyAttr.of("mesh", {"tp": option.choice})
            attributes = argument_attributes(main)
            for argument, state in zip(shared, states, strict=True):
                attributes[argument.index]["dist.sharding"] = ShardingAttr.of("mesh", 2, state)
            main.arg_attrs = ArrayAttr([DictionaryAttr(a) for a in attributes])
            copy.body.block.insert_op_before(MeshOp("mesh", {"tp": shards}), main)
            yield copy


@given(programs())
@settings(max_examples=3)
def test_the_optimum_is_that_of_all_strategies(text: str):
    compare_with_all_strategies(text)


@pytest.mark.long
@given(programs())
@settings(max_examples=60)
def test_the_optimum_is_that_of_all_strategies_of_more_programs(text: str):
    compare_with_all_strategies(text)


@pytest.mark.parametrize("operand", ["x", "v"])
def test_a_product_with_itself_within_a_limit(operand: str):
    """It is in no rule, so its operand is whole: as an input, it may arrive cut; as a result, its conversion counts once."""
    type_ = "tensor<256x256xf16>"
    compare_with_all_strategies(f"""func.func @main(%x: {type_} {{dist.name = "x", dist.role = "input"}}) -> {type_} {{
        %v = "onnx.Relu"(%x) : ({type_}) -> {type_}
        %u = "onnx.Relu"(%x) : ({type_}) -> {type_}
        %y = "onnx.MatMul"(%{operand}, %{operand}) : ({type_}, {type_}) -> {type_}
        func.return %y : {type_} }}""")


def compare_with_all_strategies(text: str) -> None:
    module = parsed(text)
    times: list[float] = []
    peaks: list[int] = []
    for candidate in strategies(module, 2):
        try:
            ApplyShardingPass().apply(Context(), candidate)
        except (DistirError, DiagnosticException, VerifyException):
            continue  # addends of different reductions, or an argument that would be addends
        simulation = simulate(candidate, MACHINE)
        times.append(simulation.makespan_seconds)
        peaks.append(max(simulation.peak_memory_bytes.values()))
    result = best_plan(problem_of(module.clone(), (("tp", 2),)))
    assert result.gap == 0
    assert abs(result.seconds - min(times)) < 1e-9  # the tie-break is a tenth of that
    program = IntegerProgram(problem_of(module.clone(), (("tp", 2),))).solve()
    assert program.gap < 1e-12
    assert abs(program.seconds - min(times)) < 1e-9
    exhaustive = Beam(problem_of(module.clone(), (("tp", 2),)), None).search()
    assert abs(exhaustive.seconds - min(times)) < 1e-9
    for limit in {sorted(peaks)[len(peaks) // 4], min(peaks)}:
        result = best_plan(problem_of(module.clone(), (("tp", 2),)), limit)
        assert result.gap == 0
        assert result.memory.peak_bytes <= limit
        assert result.seconds < min(t for t, peak in zip(times, peaks, strict=True) if peak <= limit) + 1e-9
        program = by_integer_program(problem_of(module.clone(), (("tp", 2),)), limit)  # it may also store arguments cut
        assert abs(program.seconds - result.seconds) < 1e-9


def test_within_a_limit_the_integer_program_finds_the_same_of_a_training_step():
    """The MLP's, where half of the memory must go."""
    found = [search(problem_of(mlp().module.clone(), (("dp", 2),)), 6000) for search in (best_plan, by_integer_program)]
    assert all(result.gap == 0 and result.memory.peak_bytes <= 6000 for result in found)
    assert abs(found[0].seconds - found[1].seconds) < 1e-9


# --- overlapping shards ---


def windowed(kinds: Sequence[tuple[str, list[int], int, int]], rows: int) -> str:
    """Operations on rows of three channels, each of a kernel of 3 with these pads, stride and dilation, one after the other."""
    head, body, value, type_ = "", "", "%x", f"tensor<1x3x{rows}xf32>"
    first = type_
    for i, (kind, pads, stride, dilation) in enumerate(kinds):
        rows = (rows + sum(pads) - 2 * dilation - 1) // stride + 1
        result = f"tensor<1x3x{rows}xf32>"
        numbers = {"pads": pads, "strides": [stride], "dilations": [dilation], "kernel_shape": [3]}
        properties = ", ".join(f"{k} = [{', '.join(f'{n} : si64' for n in v)}]" for k, v in numbers.items())
        if kind == "Conv":
            w = "tensor<3x3x3xf32>"
            head += f', %w{i}: {w} {{dist.name = "w{i}", dist.role = "parameter"}}'
            body += (
                f'%v{i} = "onnx.Conv"({value}, %w{i}, %none) <{{{properties}}}> : ({type_}, {w}, none) -> {result}\n'
            )
        else:
            body += f'%v{i}, %i{i} = "onnx.MaxPool"({value}) <{{{properties}}}> : ({type_}) -> ({result}, none)\n'
        value, type_ = f"%v{i}", result
    none = '%none = "onnx.NoValue"() <{value}> : () -> none\n'
    x = f'%x: {first} {{dist.name = "x", dist.role = "input"}}'
    return f"func.func @main({x}{head}) -> {type_} {{\n{none}{body}func.return {value} : {type_}\n}}"


@pytest.mark.parametrize("axes", [(("a", 2),), (("a", 4),), (("a", 2), ("b", 2))], ids=str)
def test_overlapping_shards_cost_what_their_program_takes(axes: tuple[tuple[str, int], ...], tmp_path: Path):
    """Windows without margins (130 rows become 128), margins on both sides and on one (64), of strides and dilations; what
    devices at the ends save does not count. A wide beam agrees."""
    kinds = [("MaxPool", [0, 0], 1, 1), ("Conv", [1, 1], 1, 1), ("Conv", [0, 1], 2, 1), ("Conv", [3, 1], 1, 2)]
    prices = Prices(Mesh(axes, uneven=True), load_machine(written(tmp_path)))
    problem = build(parsed(windowed(kinds, 130)), "main", prices, {}, {})
    result = best_plan(problem)
    reads = [s for o in result.plan.options.values() for states in o.operands for s in states]
    assert sum(isinstance(s, Windowed) for s in reads) >= 3
    assert Beam(problem, 64).search().seconds == result.seconds
    write(problem, result)
    ApplyShardingPass().apply(Context(), problem.module)
    problem.module.verify()
    simulation = simulate(problem.module, written(tmp_path))
    assert round(simulation.makespan_seconds / PICOSECOND) == round(result.seconds / PICOSECOND)
    assert max(simulation.peak_memory_bytes.values()) == result.memory.peak_bytes


def test_what_goes_during_a_conversion_is_not_counted_to_its_end():
    """y = conv(relu(conv(x))) over images of 1 x 8 x 2048 x 512 f32, rows and columns cut over 2 x 2: a quarter is 8 MiB. Of the
    second exchange only its source and its result are held, beside x: 3 quarters and margins (at most 3 rows or columns of each)."""
    type_, w, none = (
        "tensor<1x8x2048x512xf32>",
        "tensor<8x8x3x3xf32>",
        '%none = "onnx.NoValue"() <{value}> : () -> none',
    )
    pads = "<{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}>"
    text = f"""func.func @main(%x: {type_} {{dist.name = "x", dist.role = "input"}},
                              %w: {w} {{dist.name = "w", dist.role = "parameter"}}) -> {type_} {{
        {none}
        %h = "onnx.Conv"(%x, %w, %none) {pads} : ({type_}, {w}, none) -> {type_}
        %a = "onnx.Relu"(%h) : ({type_}) -> {type_}
        %y = "onnx.Conv"(%a, %w, %none) {pads} : ({type_}, {w}, none) -> {type_}
        func.return %y : {type_} }}"""
    problem = problem_of(parsed(text), (("a", 2), ("b", 2)))
    result = best_plan(problem)
    reads = [s for o in result.plan.options.values() for states in o.operands for s in states]
    assert sum(isinstance(s, Windowed) for s in reads) == 4
    quarter, margin = 2**23, 3 * 8 * 1024 * 4
    assert 3 * quarter <= result.memory.peak_bytes <= 3 * (quarter + margin)
    choices = ChoiceNetwork(problem)
    relaxation, fastest = Relaxation(choices), choices.fastest()
    assert fastest is not None
    counted = footprint(problem, choices.plan(fastest))
    for i, point in enumerate(counted.points):
        relaxation.add_point(point)
        assert relaxation.bytes_at(i, fastest) == counted.totals[i]
    _, simulation = lowered(problem, result)
    assert agrees(simulation, result)


# --- why ---


def test_explain_prices_every_alternative_as_its_own_best_plan():
    """The alternatives of a MatMul: what each adds is what the search finds when the others are forbidden."""
    text = """func.func @main(%x: tensor<4096x4096xf16> {dist.name = "x", dist.role = "input"},
                              %w: tensor<4096x4096xf16> {dist.name = "w", dist.role = "parameter"}) -> tensor<4096x4096xf16> {
        %h = "onnx.MatMul"(%x, %w)PINS : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
        %y = "onnx.Softmax"(%h) <{axis = 1 : si64}> : (tensor<4096x4096xf16>) -> tensor<4096x4096xf16>
        func.return %y : tensor<4096x4096xf16> }"""
    problem = problem_of(parsed(text.replace("PINS", "")), (("tp", 2),))
    result = best_plan(problem)
    lines = explain(problem, result, "h").splitlines()
    assert "tp: S1" in lines[2]
    assert "+0.000 us" in lines[2]
    assert "(chosen)" in lines[2]
    for choice in ("S2", "S3", "_"):
        pinned = text.replace("PINS", f' {{dist.strategy = #dist.strategy<@mesh, {{"tp": {choice}}}>}}')
        other = best_plan(problem_of(parsed(pinned), (("tp", 2),)))
        word = "whole" if choice == "_" else choice
        (line,) = [line for line in lines if f"tp: {word}," in line]
        assert f"+{(other.seconds - result.seconds) * 1e6:.3f} us" in line
        assert f"%h onnx.MatMul: tp: S1 | tp: {word}" in difference(
            problem, result.plan, _as_in(problem, other, pinned)
        )
    with pytest.raises(DistirError, match="no value is called 'z'; some are "):
        explain(problem, result, "z")


def test_explain_within_a_limit_prices_what_fits_and_says_what_binds():
    """The MLP, whose fastest plan needs 7108 bytes: an alternative within 6000 costs what the best plan does that is pinned to it."""
    axes = (("dp", 2),)
    problem = problem_of(mlp().module.clone(), axes)
    result = best_plan(problem, 6000)
    lines = explain(problem, result, "w1", 6000).splitlines()
    whole = mlp().module.clone()
    main = entry_function(whole)
    attributes = argument_attributes(main)
    (weight,) = [a for a in attributes if str(a["dist.name"]) == '"w1"']
    weight["dist.sharding"] = ShardingAttr.of("mesh", 2, {})
    main.arg_attrs = ArrayAttr([DictionaryAttr(a) for a in attributes])
    pinned = best_plan(problem_of(whole, axes), 6000)
    (line,) = [line for line in lines if "whole on dp" in line]
    assert f"+{(pinned.seconds - result.seconds) * 1e6:.3f} us" in line
    assert f"memory: {result.memory.peak_bytes} bytes at " in "\n".join(lines)
    assert " of 6000" in "\n".join(lines)
    assert any("binding at " in line and "a MB more saves about " in line for line in lines)
    free = best_plan(problem)
    beside = "\n".join(explanation(problem, result, ["w1"], 6000))
    assert f"the fastest plan without a limit, {(free.seconds - result.seconds) * 1e6:+.3f} us, 7108 bytes" in beside
    assert all(line in beside for line in difference(problem, result.plan, free.plan).splitlines())
    assert any("no memory constraint binds" in line for line in memory_lines(problem, best_plan(problem, 7108), 7108))


def _as_in(problem: Problem, other: Result, text: str) -> Plan:
    """The plan that this problem has when its MatMul is pinned as in the text."""
    copy = problem_of(problem.module, (("tp", 2),))
    for op in copy.options:
        if op.name == "onnx.MatMul":
            chosen = next(o for p, o in other.plan.options.items() if p.name == op.name)
            copy.options[op] = [o for o in copy.options[op] if o.options == chosen.options]
    return best_plan(copy).plan


# --- beam search ---


def test_a_wide_beam_finds_what_the_integer_program_finds():
    """On 4 layers of GPT-2 with one axis; a beam is never better."""
    best = best_plan(problem_of(gpt2(2).module.clone(), (("tp", 2),), tp="model"))
    found = [Beam(problem_of(gpt2(2).module.clone(), (("tp", 2),), tp="model"), width).search() for width in (2, 2, 16)]
    assert found[0].seconds == found[1].seconds  # deterministic
    assert all(result.seconds >= best.seconds for result in found)
    assert found[2].seconds == best.seconds


@pytest.mark.parametrize("search", [IlpShardPass, BeamShardPass])
@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"mesh": "tp"}, "mesh: expected distinct axes and sizes"),
        ({}, "mesh: expected axes and sizes"),
        ({"mesh": "tp=2", "restrict": "dp=batch"}, "restrict: expected AXIS=KIND with an axis of tp"),
        ({"mesh": "tp=2", "memory_limit": "much"}, "memory-limit: expected a size such as 28GB"),
        ({"mesh": "tp=64", "machine": "dgx-2"}, "machine dgx-2 has 16 devices, the program needs 64"),
    ],
    ids=str,
)
def test_refusals(search: Any, given_: dict[str, Any], message: str):
    with pytest.raises(DistirError, match=message):
        search(**given_).apply(Context(), mlp().module.clone())


def test_pins_that_leave_nothing():
    module = parsed(
        """func.func @main(%x: tensor<64x64xf16> {dist.name = "x", dist.role = "input"}) -> tensor<64x64xf16> {
        %y = "onnx.Relu"(%x) {dist.forbid = [#dist.strategy<@mesh, {"tp": _}>],
                              dist.strategy = #dist.strategy<@mesh, {"tp": _}>} : (tensor<64x64xf16>) -> tensor<64x64xf16>
        func.return %y : tensor<64x64xf16> }"""
    )
    assert not any(is_constant(op) for op in entry_function(module).body.block.ops)
    with pytest.raises(DistirError, match=r"onnx.Relu of \[\[64, 64\]\] has no option that its pins allow"):
        problem_of(module, (("tp", 2),))
