"""What functions in the loop over microbatches make of parameters alone runs once a step, and the program computes what it did."""

from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.registry import program_context
from distir.dialects.sharding import Sharded
from distir.frontends.text import parse_program
from distir.interpreters.entry import entry_function
from distir.interpreters.equivalence import verify
from distir.passes.distribution.space import Reach
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.sharding.settings import build_problem
from distir.passes.structure import calls_first, executions

ON_WEIGHTS = ("onnx.Neg", "onnx.Sin", "onnx.Tanh")
SQUARE, ROWS = "tensor<6x6xf32>", "tensor<4x6xf32>"
MATMUL = (
    "dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, "
    "partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>"
)
RELU = "dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Layers of one or two functions, the second of which calls the first, on weights of their own or shared ones. Each makes something
    of its weight, by operations that are used in the layer, by its caller, or by both."""
    inner = _layer(draw, "inner", None)
    outer = _layer(draw, "outer", "inner")
    calls, value = list[str](), "%x"
    weights = [f"%w{i}" for i in range(draw(st.integers(1, 3)))]
    known = list(weights)
    for i in range(draw(st.integers(2, 4))):
        callee, weight = draw(st.sampled_from(["inner", "outer"])), draw(st.sampled_from(known))
        calls.append(
            f"  %y{i}, %m{i} = func.call @{callee}({value}, {weight}) : ({ROWS}, {SQUARE}) -> ({ROWS}, {SQUARE})"
        )
        value = f"%y{i}"
        known.append(f"%m{i}")
    arguments = ", ".join(
        [
            f'%x: {ROWS} {{dist.name = "x", dist.role = "input"}}',
            *(f'{w}: {SQUARE} {{dist.name = "{w[1:]}", dist.role = "parameter"}}' for w in weights),
        ]
    )
    lines = [f'func.func @main({arguments}) -> ({ROWS} {{dist.name = "y", dist.role = "output"}}) {{', *calls]
    return "\n".join([*lines, f"  func.return {value} : {ROWS}", "}", inner, outer])


def _layer(draw: st.DrawFn, name: str, callee: str | None) -> str:
    values, lines = ["%w"], list[str]()
    for i in range(draw(st.integers(0, 3))):
        op, value = draw(st.sampled_from(ON_WEIGHTS)), draw(st.sampled_from(values))
        lines.append(f'  %v{i} = "{op}"({value}) : ({SQUARE}) -> {SQUARE}')
        values.append(f"%v{i}")
    taken = draw(st.sampled_from(values))
    if callee is not None:
        lines.append(f"  %a, %b = func.call @{callee}(%x, {taken}) : ({ROWS}, {SQUARE}) -> ({ROWS}, {SQUARE})")
        values.append("%b")
    else:
        lines.append(f'  %a = "onnx.MatMul"(%x, {taken}) {{{MATMUL}}} : ({ROWS}, {SQUARE}) -> {ROWS}')
    lines.append(f"  func.return %a, {draw(st.sampled_from(values))} : {ROWS}, {SQUARE}")
    head = f"func.func private @{name}(%x: {ROWS}, %w: {SQUARE}) -> ({ROWS}, {SQUARE}) {{"
    return "\n".join([head, *lines, "}"])


def executed(module: ModuleOp) -> int:
    """How many operations on weights run in a step."""
    entry = entry_function(module)
    called = calls_first(module)
    counts = executions(called, entry)
    return sum(counts[f.sym_name.data] * sum(op.name in ON_WEIGHTS for op in f.body.block.ops) for f in called)


@given(programs(), st.sampled_from([1, 2]), st.sampled_from([2, 4]))
@settings(max_examples=30, deadline=None)
def test_what_depends_on_parameters_alone_runs_once(text: str, stages: int, count: int) -> None:
    sequential = parse_program(program_context(), text, "model")
    module = sequential.clone()
    PipelineStagesPass(stages, microbatches=count).apply(Context(), module)
    MicrobatchPass(count).apply(Context(), module)
    module.verify()
    assert executed(module) <= executed(sequential)
    assert all(comparison.holds for comparison in verify(sequential, module, count=1).comparisons)


def test_what_a_function_makes_of_a_weight_is_a_weight() -> None:
    """As if it was made where it is used; a weight of one axis beside it would otherwise be the only one."""
    text = f"""
    func.func @main(%x: {ROWS} {{dist.name = "x", dist.role = "input"}}, %w: {SQUARE} {{dist.name = "w", dist.role = "parameter"}},
                    %v: {SQUARE} {{dist.name = "v", dist.role = "parameter"}})
        -> ({ROWS} {{dist.name = "y", dist.role = "output"}}) {{
      %n = func.call @made(%w) : ({SQUARE}) -> {SQUARE}
      %a = "onnx.MatMul"(%x, %n) {{{MATMUL}}} : ({ROWS}, {SQUARE}) -> {ROWS}
      %r = "onnx.Relu"(%a) {{{RELU}}} : ({ROWS}) -> {ROWS}
      %y = "onnx.MatMul"(%r, %v) {{{MATMUL}}} : ({ROWS}, {SQUARE}) -> {ROWS}
      func.return %y : {ROWS}
    }}
    func.func private @made(%w: {SQUARE}) -> {SQUARE} {{
      %n = "onnx.Neg"(%w) {{{RELU}}} : ({SQUARE}) -> {SQUARE}
      func.return %n : {SQUARE}
    }}"""
    module = parse_program(program_context(), text, "model")
    entry = entry_function(module)
    x, w, v = entry.body.block.args
    reach = Reach(module, entry, {0: 0})
    assert [reach.is_weight(value, dim) for value in (w, v) for dim in range(2)] == [True] * 4
    assert [reach.is_weight(x, dim) for dim in range(2)] == [False, True]


def test_what_is_made_before_the_loop_may_be_held_in_parts() -> None:
    """Over replicas too, as parameters may, though what the loop does with it follows the batch alone."""
    text = f"""
    func.func @main(%x: {ROWS} {{dist.name = "x", dist.role = "input"}}, %w: {SQUARE} {{dist.name = "w", dist.role = "parameter"}})
        -> ({ROWS} {{dist.name = "y", dist.role = "output"}}) {{
      %a = func.call @layer(%x, %w) : ({ROWS}, {SQUARE}) -> {ROWS}
      %y = func.call @layer(%a, %w) : ({ROWS}, {SQUARE}) -> {ROWS}
      func.return %y : {ROWS}
    }}
    func.func private @layer(%x: {ROWS}, %w: {SQUARE}) -> {ROWS} {{
      %n = "onnx.Neg"(%w) {{{RELU}}} : ({SQUARE}) -> {SQUARE}
      %a = "onnx.MatMul"(%x, %n) {{{MATMUL}}} : ({ROWS}, {SQUARE}) -> {ROWS}
      func.return %a : {ROWS}
    }}"""
    module = parse_program(program_context(), text, "model")
    PipelineStagesPass(2, microbatches=2).apply(Context(), module)
    MicrobatchPass(2).apply(Context(), module)
    problem, _ = build_problem(
        Context(), module, "dp=2", "dgx-a100", "analytic", "", "dp=batch", "any", "main", None, "1f1b"
    )
    weights = [a for a in problem.arguments if str(a.type) == SQUARE]
    assert len(weights) > 4
    for weight in weights:
        assert {(Sharded(dim, (6,)),) for dim in range(2)} <= {*problem.arguments[weight]}, weight
