"""Why a plan is what it is: alternatives are priced as their own best plans, and what binds is listed."""

import pytest
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr

from distir.dialects.errors import DistirError
from distir.dialects.sharding import ShardingAttr
from distir.interpreters.entry import entry_function
from distir.passes.sharding.explain import difference, explain, explanation, memory_lines
from distir.passes.sharding.plans import ShardingPlan
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.result import Result
from distir.passes.sharding.search import best_plan
from distir.passes.structure import argument_attributes
from tests.small_models import mlp
from tests.unit.sharding_problems import parsed, problem_of


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


@pytest.mark.long
def test_explain_within_a_limit_prices_what_fits_and_says_what_binds():
    """The MLP, whose fastest plan needs 7108 bytes: an alternative within 6000 costs what the best plan does that is pinned to it."""
    axes = (("dp", 2),)
    problem = problem_of(mlp().module.clone(), axes)
    result = best_plan(problem, 6000)
    lines = explanation(problem, result, ["w1"], 6000)
    whole = mlp().module.clone()
    main = entry_function(whole)
    attributes = [dict(known) for known in argument_attributes(main)]
    (weight,) = [a for a in attributes if str(a["dist.name"]) == '"w1"']
    weight["dist.sharding"] = ShardingAttr.of("mesh", 2, {})
    main.arg_attrs = ArrayAttr([DictionaryAttr(a) for a in attributes])
    pinned = best_plan(problem_of(whole, axes), 6000)
    line = next(line for line in lines if "whole on dp" in line)
    assert f"+{(pinned.seconds - result.seconds) * 1e6:.3f} us" in line
    assert f"memory: {result.memory.peak_bytes} bytes at " in "\n".join(lines)
    assert " of 6000" in "\n".join(lines)
    assert any("binding at " in line and "a MB more saves about " in line for line in lines)
    free = best_plan(problem)
    beside = "\n".join(lines)
    assert f"the fastest plan without a limit, {(free.seconds - result.seconds) * 1e6:+.3f} us, 7108 bytes" in beside
    assert all(line in beside for line in difference(problem, result.plan, free.plan).splitlines())
    assert any("no memory constraint binds" in line for line in memory_lines(problem, best_plan(problem, 7108), 7108))


def _as_in(problem: Problem, other: Result, text: str) -> ShardingPlan:
    """The plan that this problem has when its MatMul is pinned as in the text."""
    copy = problem_of(problem.module, (("tp", 2),))
    for op in copy.options:
        if op.name == "onnx.MatMul":
            chosen = next(o for p, o in other.plan.options.items() if p.name == op.name)
            copy.options[op] = [o for o in copy.options[op] if o.options == chosen.options]
    return best_plan(copy).plan
