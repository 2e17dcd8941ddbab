"""Annotated programs as Shardy's `sdy` and back. Expected rules are Shardy's own notation
(https://openxla.org/shardy/sharding_representation), derived by hand from what the operator does."""

import random
from collections.abc import Callable

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from distir.backends.shardy import export_module, import_module, import_shardings, with_shardy
from distir.backends.shardy.importing import parse
from distir.dialects.errors import DistirError
from distir.dialects.sharding import MeshOp, RuleAttr
from tests.random_strategies import with_random_strategies
from tests.small_models import gpt2

MATMUL = "[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}"
MLP = f"""
dist.mesh @mesh = <["dp" = 2, "tp" = 4]>
func.func @main(%x: tensor<4x8xf32> {{dist.name = "x", dist.sharding = #dist.sharding<@mesh, [{{"dp"}}, {{}}]>}},
                %w0: tensor<8x16xf32> {{dist.name = "w0", dist.sharding = #dist.sharding<@mesh, [{{}}, {{"tp"}}]>}},
                %w1: tensor<16x6xf32> {{dist.name = "w1", dist.sharding = #dist.sharding<@mesh, [{{"tp"}}, {{}}]>}})
    -> (tensor<4x6xf32> {{dist.name = "y", dist.sharding = #dist.sharding<@mesh, [{{"dp"}}, {{}}]>}}) {{
  %h = "onnx.MatMul"(%x, %w0) {{dist.rule = #dist.rule<{MATMUL}, found = exact>, dist.strategy = #dist.strategy<@mesh, {{"dp": S1, "tp": S3}}>}} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %a = "onnx.Relu"(%h) {{dist.rule = #dist.rule<[S1, S2] -> {{S1: gather(0), S2: gather(1)}}, partial = [max: 0 -> 0, min: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {{"dp": S1, "tp": S2}}>}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %y = "onnx.MatMul"(%a, %w1) {{dist.rule = #dist.rule<{MATMUL}, found = exact>, dist.strategy = #dist.strategy<@mesh, {{"dp": S1, "tp": S2}}>}} : (tensor<4x16xf32>, tensor<16x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}}
"""


def only(module: ModuleOp, name: str) -> Operation:
    return next(op for op in module.walk() if op.name == name)


def annotated(module: ModuleOp) -> Operation:
    return next(op for op in module.walk() if "sdy.sharding_rule" in op.attributes)


def without_ours(module: ModuleOp) -> ModuleOp:
    """A copy without mesh, rules, strategies and shardings."""
    bare = module.clone()
    for op in list(bare.walk()):
        if isinstance(op, MeshOp):
            op.detach()
            op.erase()
            continue
        for name in ("dist.rule", "dist.strategy"):
            op.attributes.pop(name, None)
        if isinstance(op, FuncOp):
            op.arg_attrs = op.res_attrs = None
    return bare


def test_the_text_of_an_mlp() -> None:
    text = str(with_shardy(parse(MLP)))
    first, relu, last = (line.split("{", 1)[1] for line in text.splitlines() if '"onnx.' in line)
    assert 'sdy.mesh @mesh = <["dp"=2, "tp"=4]>' in text
    assert (
        '%x: tensor<4x8xf32> {dist.name = "x", sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {}]>}, '
        '%w0: tensor<8x16xf32> {dist.name = "w0", sdy.sharding = #sdy.sharding<@mesh, [{}, {"tp"}]>}, '
        '%w1: tensor<16x6xf32> {dist.name = "w1", sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>}) -> '
        '(tensor<4x6xf32> {dist.name = "y", sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {}]>})'
    ) in text
    # A matmul is Shardy's own example; nothing of ours is left on it.
    assert first.startswith(
        "sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [j, k])->([i, k]) {i=4, j=8, k=16} reduction={j}>, "
        'sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"dp"}, {"tp"}]>]>} : '
    )
    # That a partial maximum passes a relu is more than Shardy says.
    assert relu.startswith("dist.rule = ")
    assert "dist." not in first + last
    assert 'sdy.sharding_per_value<[<@mesh, [{"dp"}, {}], unreduced={"tp"}>]>' in last


def test_an_mlp_comes_back() -> None:
    module = parse(MLP)
    assert str(import_module(export_module(module))) == str(module)
    bare = without_ours(module)
    import_shardings(export_module(module), bare)
    assert [op.attributes for op in bare.walk() if "onnx" in op.name] == [
        op.attributes for op in module.walk() if "onnx" in op.name
    ]


RULES = {
    # A fused QKV weight's three pieces are a factor of 3 outside the one that can be cut.
    "pieces": (
        '"model.split"(%x) {dist.rule = #dist.rule<[S1, S2(pieces = [1, 1, 1])] -> {S1: [gather(0), gather(0), gather(0)], '
        "S2: [gather(1), gather(1), gather(1)]}, found = exact>} : (tensor<4x24xf32>) -> "
        "(tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)",
        "([i, jk])->([i, k], [i, k], [i, k]) {i=4, j=3, k=8} need_replication={j}>",
    ),
    # A view's merged dim, and a dim of which only the major part can be cut.
    "views": (
        '"model.view"(%x) {dist.rule = #dist.rule<[S1 * S2, S3] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, '
        "found = exact>} : (tensor<6x5xf32>) -> tensor<2x3x5xf32>",
        "([ij, k])->([i, j, k]) {i=2, j=3, k=5}>",
    ),
    "remainder": (
        '"model.view"(%x) {dist.rule = #dist.rule<[S1, _] -> {S1: gather(0)}, found = exact>} : '
        "(tensor<6x4xf32>) -> tensor<24xf32>",
        "([i, j])->([ik]) {i=6, j=4, k=4} need_replication={j, k}>",
    ),
}


@pytest.mark.parametrize(("operation", "expected"), RULES.values(), ids=RULES)
def test_rules_that_shardy_says_whole(operation: str, expected: str) -> None:
    shape = operation.split(": (")[1].split(")")[0]
    module = parse(
        f"func.func @main(%x: {shape}) {{\n  {'%0:3 = ' if 'split' in operation else '%0 = '}{operation}\n  func.return\n}}"
    )
    op = next(op for op in module.walk() if "dist.rule" in op.attributes)
    exported = annotated(with_shardy(module))
    assert str(exported.attributes["sdy.sharding_rule"]).removeprefix("#sdy.op_sharding_rule<") == expected
    assert "dist.rule" not in exported.attributes
    again = next(o for o in import_module(export_module(module)).walk() if "dist.rule" in o.attributes)
    assert again.attributes["dist.rule"] == op.attributes["dist.rule"]


MORE = {
    # Neighbours' elements are Shardy's permutation; the width of the halo is ours to know.
    "halo": (
        "[S1, S2(halo = 1)] -> {S1: gather(0), S2: gather(1, halo = 1)}",
        "tensor<4x16xf32>",
        "tensor<4x14xf32>",
        "([i, j])->([i, j]) {i=4, j=16} permutation={j}>",
    ),
    "unequal pieces": (
        "[S1, S2(pieces = [2, 1, 1])] -> {S1: gather(0), S2: gather(1, pieces = [2, 1, 1])}",
        "tensor<4x16xf32>",
        "tensor<4x16xf32>",
        "([i, j])->([i, k]) {i=4, j=16, k=16} need_replication={j, k}>",
    ),
    "a maximum": (
        "[S1, S2] -> {S1: gather(0), S2: reduce(max)}",
        "tensor<4x16xf32>",
        "tensor<4xf32>",
        "([i, j])->([i]) {i=4, j=16} reduction={j}>",
    ),
}


@pytest.mark.parametrize(("rule", "operand", "result", "expected"), MORE.values(), ids=MORE)
def test_rules_that_say_more_stay_beside(rule: str, operand: str, result: str, expected: str) -> None:
    module = parse(
        f'func.func @main(%x: {operand}) {{\n  %0 = "model.op"(%x) {{dist.rule = #dist.rule<{rule}, found = exact>}}'
        f" : ({operand}) -> {result}\n  func.return\n}}"
    )
    exported = annotated(with_shardy(module))
    assert str(exported.attributes["sdy.sharding_rule"]).removeprefix("#sdy.op_sharding_rule<") == expected
    assert str(import_module(export_module(module))) == str(module)


def test_a_bias_that_must_be_an_addend_keeps_shardy_from_cutting() -> None:
    """Shardy would add a whole bias on every shard of a cut contraction."""
    module = parse(
        """func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) {
  %0 = "model.linear"(%x, %w, %b) {dist.rule = #dist.rule<[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: S2, 2 -> 0], found = exact>} : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  func.return
}"""
    )
    rule = str(annotated(with_shardy(module)).attributes["sdy.sharding_rule"])
    assert "reduction" not in rule
    assert "([i, j], [k, l], [l])->([i, l])" in rule
    assert "need_replication={j, k}" in rule


def test_what_shardy_changed_counts() -> None:
    module = parse(MLP)
    text = export_module(module)
    changed = text.replace('[<@mesh, [{"dp"}, {}], unreduced={"tp"}>]', '[<@mesh, [{"dp"}, {}]>]')
    assert changed != text
    last = [op for op in import_module(changed).walk() if op.name == "onnx.MatMul"][1]
    assert str(last.attributes["dist.strategy"]) == '#dist.strategy<@mesh, {"dp": S1, "tp": _}>'
    factors = text.replace(
        "([i, j], [j, k])->([i, k]) {i=4, j=8, k=16} reduction={j}",
        "([i, j], [j, k])->([i, k]) {i=4, j=8, k=16} need_replication={j}",
    )
    first = only(import_module(factors), "onnx.MatMul")
    assert (
        str(first.attributes["dist.rule"])
        == "#dist.rule<[S1, _], [_, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>"
    )
    assert str(first.attributes["dist.strategy"]) == '#dist.strategy<@mesh, {"dp": S1, "tp": S2}>'


ERRORS: dict[str, tuple[Callable[[str], str], str]] = {
    "part of an axis": (lambda t: t.replace('[{"dp"}, {"tp"}]', '[{"dp"}, {"tp":(1)2}]'), "is a part of an axis"),
    "unknown axis": (lambda t: t.replace('[{"dp"}, {"tp"}]', '[{"dp"}, {"pp"}]'), 'has no axis "pp"'),
    "order of axes": (lambda t: t.replace('[{"dp"}, {"tp"}]', '[{}, {"tp", "dp"}]'), "not their order in the mesh"),
    "uneven": (
        lambda t: t.replace('[{"dp"}, {"tp"}]', '[{}, {"dp", "tp"}]').replace('"tp"=4', '"tp"=3'),
        "not cut evenly",
    ),
    "another program": (lambda t: t.replace("onnx.Relu", "onnx.Tanh"), "operation 1 of the text is onnx.Tanh"),
    "another signature": (
        lambda t: (
            t.replace("%w1: tensor<16x6xf32>):", "%w1: tensor<16x6xf32>, %z: tensor<f32>):")
            .replace(
                "tensor<16x6xf32>) -> tensor<4x6xf32>, arg", "tensor<16x6xf32>, tensor<f32>) -> tensor<4x6xf32>, arg"
            )
            .replace("], res_attrs", ", {}], res_attrs")
        ),
        "other numbers of arguments",
    ),
    "attributes of another signature": (
        lambda t: t.replace("], res_attrs", ", {}], res_attrs"),
        "has 3 arguments and attributes of 4",
    ),
    "two meshes": (
        lambda t: t.replace(
            "({\n", '({\n"sdy.mesh"() <{sym_name = "other", mesh = #sdy.mesh<["x"=2]>}> : () -> ()\n', 1
        ),
        "distir reads one",
    ),
}


@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS)
def test_what_cannot_be_read_is_said(change: Callable[[str], str], message: str) -> None:
    module = parse(MLP)
    text = export_module(module)
    assert change(text) != text
    with pytest.raises(DistirError, match=message):
        import_shardings(change(text), without_ours(module))


def with_strategies(seed: int, layers: int) -> ModuleOp:
    """A transformer in which every operation does anything that its rule allows."""
    axes = {"dp": 2, "one": 1, "tp": 3}
    return with_random_strategies(gpt2(layers, 4).module, axes, random.Random(seed))


def test_any_strategies_come_back() -> None:
    """Pieces, partial states, several axes on a dim: in Shardy's terms or beside them, nothing is lost."""
    module = with_strategies(0, layers=1)
    again = import_module(export_module(module))
    assert again.is_structurally_equivalent(module)
    bare = module.clone()
    for op in bare.walk():
        op.attributes.pop("dist.strategy", None)
    import_shardings(export_module(module), bare)
    assert bare.is_structurally_equivalent(module)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_shardy_itself_reads_it(seed: int) -> None:
    """The parser and the verifiers of Shardy, which jaxlib ships; what it prints comes back."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext

    module = with_strategies(seed, layers=2)
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        context.allow_unregistered_dialects = True
        theirs = ir.Module.parse(export_module(module))
        assert theirs.operation.verify()
        printed = [str(theirs), theirs.operation.get_asm(print_generic_op_form=True)]
    for text in printed:
        assert import_module(text).is_structurally_equivalent(module)


def test_rules_of_a_model_are_ours_when_shardy_says_them_whole() -> None:
    """Of a transformer's rules without partial values and sizes, all come back from Shardy's text alone."""
    module = gpt2(1, 4).module
    bare = module.clone()
    plain: list[tuple[Operation, Operation]] = []
    for op, other in zip(module.walk(), bare.walk(), strict=True):
        rule = op.attributes.get("dist.rule")
        if isinstance(rule, RuleAttr) and not rule.data.partials and not rule.data.sizes:
            plain.append((op, other))
        other.attributes.pop("dist.rule", None)
    assert plain
    import_shardings(export_module(module), bare)
    for op, other in plain:
        assert op.attributes["dist.rule"] == other.attributes["dist.rule"]
