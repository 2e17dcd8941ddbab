"""The optimum of `ilp-shard` is that of all strategies of small programs, lowered and simulated, within limits of memory too; the integer
program and an unlimited beam agree."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import DiagnosticException, VerifyException

from distir.dialects.errors import DistirError
from distir.dialects.sharding import MeshOp, Sharded, ShardingAttr, StrategyAttr
from distir.interpreters.entry import entry_function
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.options import options
from distir.passes.sharding.beam import Beam
from distir.passes.sharding.search import SOLVERS, best_plan
from distir.passes.structure import argument_attributes, shape_of
from tests.small_models import mlp
from tests.unit.sharding_problems import MACHINE, parsed, problem_of


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
            attributes = [dict(known) for known in argument_attributes(main)]
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


@pytest.mark.parametrize("operand", [pytest.param("x", marks=pytest.mark.long), "v"])
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
    program = best_plan(problem_of(module.clone(), (("tp", 2),)), solver="highs")
    assert program.gap == 0
    assert abs(program.seconds - min(times)) < 1e-9
    exhaustive = Beam(problem_of(module.clone(), (("tp", 2),)), None).search()
    assert abs(exhaustive.seconds - min(times)) < 1e-9
    for limit in {sorted(peaks)[len(peaks) // 4], min(peaks)}:
        result = best_plan(problem_of(module.clone(), (("tp", 2),)), limit)
        assert result.gap == 0
        assert result.memory.peak_bytes <= limit
        assert result.seconds < min(t for t, peak in zip(times, peaks, strict=True) if peak <= limit) + 1e-9
        program = best_plan(
            problem_of(module.clone(), (("tp", 2),)), limit, solver="highs"
        )  # it may also store arguments cut
        assert abs(program.seconds - result.seconds) < 1e-9


def test_within_a_limit_the_integer_program_finds_the_same_of_a_training_step():
    """The MLP's, where half of the memory must go."""
    problem = problem_of(mlp().module.clone(), (("dp", 2),))
    found = [best_plan(problem, 6000, solver=solver) for solver in SOLVERS]
    assert all(result.gap == 0 and result.memory.peak_bytes <= 6000 for result in found)
    assert abs(found[0].seconds - found[1].seconds) < 1e-9
