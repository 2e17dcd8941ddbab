"""Searches for shardings: what a plan is said to cost is what its program takes in the simulator, memory limits hold, plans compute
what the sequential program does; what is refused."""

from typing import Any

import numpy as np
import pytest
from xdsl.context import Context

from distir.dialects.errors import DistirError
from distir.interpreters.entry import entry_function
from distir.interpreters.reference import run
from distir.passes.beam_shard import BeamShardPass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.sharding import problem as problem_module
from distir.passes.sharding.beam import Beam
from distir.passes.sharding.choice_network import ChoiceNetwork
from distir.passes.sharding.least_memory import least_memory
from distir.passes.sharding.relaxation import Relaxation
from distir.passes.sharding.search import best_plan
from distir.passes.sharding.within_memory import WithinMemory
from distir.passes.structure import is_constant
from tests.small_models import gpt2, mlp
from tests.unit.sharding_problems import agrees, lowered, parsed, problem_of


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


@pytest.mark.parametrize("gives_up", [False, True])
def test_too_little_memory_says_what_is_needed(gives_up: bool, monkeypatch: pytest.MonkeyPatch):
    """Even if only the whole integer program proves it. y = x w of 64 x 64 f16 (8192 bytes each) over 2 devices: cut by rows or columns, two of the three are halved; cut in the
    middle, the two operands are, and the result is whole."""
    text = """func.func @main(%x: tensor<64x64xf16> {dist.name = "x", dist.role = "input"},
                              %w: tensor<64x64xf16> {dist.name = "w", dist.role = "parameter"}) -> tensor<64x64xf16> {
        %y = "onnx.MatMul"(%x, %w) : (tensor<64x64xf16>, tensor<64x64xf16>) -> tensor<64x64xf16>
        func.return %y : tensor<64x64xf16> }"""
    if gives_up:
        monkeypatch.setattr(
            WithinMemory, "search", lambda search, fastest, memory, _: search.pricing.add(fastest, memory) and None
        )
    with pytest.raises(
        DistirError, match=r"no sharding fits; the smallest that one needs is 16384 bytes .*MatMul in @main"
    ):
        best_plan(problem_of(parsed(text), (("tp", 2),)), 1000)
    choices = ChoiceNetwork(problem_of(parsed(text), (("tp", 2),)))
    least = least_memory(choices, [choices.fastest() or []])
    assert least.is_proven
    assert least.memory.peak_bytes == 16384
    choices.own[0][1:] = np.inf  # what is ruled out stays so where time counts for nothing
    relaxation = Relaxation(choices, 0.0)
    assert relaxation.own[0].tolist() == [0.0, *[np.inf] * (len(choices.own[0]) - 1)]
    assert np.isinf(relaxation.network(()).cost([1, *[0] * (len(choices.own) - 1)]))


@pytest.mark.parametrize("uses", [26, 71])
def test_a_value_with_many_uses(uses: int):
    """One vector that products and sums of rows take, over two axes: as the integer program has it, whose size is linear in uses."""
    rows, vector = "tensor<64x256xf32>", "tensor<256xf32>"
    lines = [
        f'%v{i + 1} = "onnx.{("Mul", "Add", "Sub")[i % 3]}"(%v{i}, %b) : ({rows}, {vector}) -> {rows}'
        for i in range(uses)
    ]
    text = f"""func.func @main(%v0: {rows} {{dist.name = "x", dist.role = "input"}},
                               %b: {vector} {{dist.name = "b", dist.role = "parameter"}}) -> {rows} {{
        {chr(10).join(lines)}
        func.return %v{uses} : {rows} }}"""
    problem = problem_of(parsed(text), (("dp", 2), ("tp", 2)))
    result = best_plan(problem)
    assert result.gap == 0
    if uses < 30:
        assert abs(best_plan(problem, solver="highs").seconds - result.seconds) < 1e-9
    with pytest.raises(DistirError, match=f"needs is {result.memory.peak_bytes} bytes"):
        best_plan(problem, result.memory.peak_bytes - 1)
    assert agrees(lowered(problem, result)[1], result)


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


def test_equal_operations_are_priced_once(monkeypatch: pytest.MonkeyPatch):
    """Operations that state the same, of the same types; other constants are other sizes."""
    module = parsed(
        """
        func.func @main(%a: tensor<8x6xf32>) -> (tensor<8x6xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
          %o = "onnx.Constant"() <{value = #onnx.tensor<dense<1> : tensor<1xi64>>}> : () -> tensor<1xi64>
          %z = "onnx.Constant"() <{value = #onnx.tensor<dense<0> : tensor<1xi64>>}> : () -> tensor<1xi64>
          %f = "onnx.Constant"() <{value = #onnx.tensor<dense<4> : tensor<1xi64>>}> : () -> tensor<1xi64>
          %v = "onnx.Constant"() <{value = #onnx.tensor<dense<5> : tensor<1xi64>>}> : () -> tensor<1xi64>
          %b = "onnx.Relu"(%a) : (tensor<8x6xf32>) -> tensor<8x6xf32>
          %c = "onnx.Relu"(%b) : (tensor<8x6xf32>) -> tensor<8x6xf32>
          %d = "onnx.Relu"(%c) : (tensor<8x6xf32>) -> tensor<8x6xf32>
          %e = "onnx.Slice"(%d, %z, %f, %o) : (tensor<8x6xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<8x4xf32>
          %g = "onnx.Slice"(%d, %o, %v, %o) : (tensor<8x6xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<8x4xf32>
          func.return %d, %e, %g : tensor<8x6xf32>, tensor<8x4xf32>, tensor<8x4xf32>
        }
        """
    )
    asked: list[str] = []
    joint = problem_module._joint_options
    monkeypatch.setattr(problem_module, "_joint_options", lambda op, *rest: asked.append(op.name) or joint(op, *rest))
    problem = problem_of(module, (("dp", 2), ("tp", 2)))
    assert (asked.count("onnx.Relu"), asked.count("onnx.Slice")) == (1, 2)
    relus = [found for op, found in problem.options.items() if op.name == "onnx.Relu"]
    assert relus[0] == relus[1] == relus[2]
    assert len(relus[0]) > 4
