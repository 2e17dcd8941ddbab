"""Plans whose shards overlap: windows cost and hold what their program does."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from xdsl.context import Context

from distir.dialects.sharding import Windowed
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.mesh import Mesh
from distir.passes.sharding.beam import Beam
from distir.passes.sharding.choice_network import ChoiceNetwork
from distir.passes.sharding.memory import footprint
from distir.passes.sharding.prices import Prices
from distir.passes.sharding.problem import build
from distir.passes.sharding.relaxation import Relaxation
from distir.passes.sharding.search import best_plan
from distir.passes.sharding.settings import write
from tests.slow_machine import written
from tests.unit.sharding_problems import PICOSECOND, agrees, lowered, parsed, problem_of


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
