"""Names of values in text: whatever a model calls its values, the text is read back as the same program."""

from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.dialects.test import Test

from distir.dialects.onnx import Onnx
from distir.frontends.onnx import import_model
from distir.frontends.text import parse_program
from distir.interpreters.reference import run

Names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)
Numbered = st.lists(st.from_regex(r"[a-b.]{0,2}(_[0-2]){0,3}", fullmatch=True).filter(bool), min_size=1, unique=True)


def parsed(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Onnx, Test):
        context.load_dialect(dialect)
    return parse_program(context, text, "text")


@given(Names | Numbered)
@example(["t", "t_1", "t_1_2"])
@example(["1", "_1", "é", "t_1\n", "%t", '"'])
def test_the_values_of_a_file_may_have_any_names(names: list[str]) -> None:
    """Each value is twice the one before it, so a mistaken name would show in the result."""
    values = ["x", *(name if name != "x" else "x_" for name in names)]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", [a, a], [b]) for a, b in pairwise(values)],
            "names",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info(values[-1], TensorProto.FLOAT, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    if len(set(values)) < len(values):
        return
    module = import_model(model)
    again = parsed(str(module))
    assert str(again) == str(module)
    (result,) = run(again, {"x": np.ones(2, np.float32)}).values()
    np.testing.assert_array_equal(result, np.full(2, 2.0 ** len(names), np.float32))


@given(st.lists(st.from_regex(r"[a-b](_[0-2]){0,3}", fullmatch=True), min_size=1, max_size=8, unique=True))
def test_text_with_numbered_names_is_printed_so_that_it_parses(names: list[str]) -> None:
    text = "".join(f'%{name} = "test.op"() : () -> i32\n"test.op"(%{name}) : (i32) -> ()\n' for name in names)
    once = str(parsed(text))
    assert str(parsed(once)) == once
    assert once.count("%") == 2 * len(names)


def test_names_stay_readable() -> None:
    module = parsed('%layer.3.attn_1_2 = "test.op"() : () -> i32\n%attn_1 = "test.op"() : () -> i32')
    assert [op.results[0].name_hint for op in module.ops] == ["layer_3_attn", "attn"]
