"""Equal contents are one object, and only those."""

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, Builtin, FloatAttr, TensorType, f16, f32, i64
from xdsl.parser import Parser

from distir.interpreters.shared import Shared, texts_of_regions


def test_equal_types_are_one_object() -> None:
    shared = Shared()
    assert shared.value(TensorType(f32, [2, 3])) is shared.value(TensorType(f32, [2, 3]))
    assert shared.number(TensorType(f32, [2, 3])) != shared.number(TensorType(f16, [2, 3]))


def test_zeros_of_both_signs_are_two_numbers() -> None:
    """What is computed from them differs."""
    shared = Shared()
    plus, minus = FloatAttr(0.0, f32), FloatAttr(-0.0, f32)
    assert shared.number(plus) != shared.number(minus)
    assert shared.number(ArrayAttr([plus])) != shared.number(ArrayAttr([minus]))
    assert shared.number(ArrayAttr([plus])) == shared.number(ArrayAttr([FloatAttr(0.0, f32)]))


def test_arrays_are_told_apart_by_type_shape_and_bytes() -> None:
    shared = Shared()
    one = np.array([1, 2])
    assert shared.value(np.array([1, 2])) is shared.value(one)
    others = [np.array([1, 2], np.int32), np.array([[1, 2]]), np.array([1, 3]), np.array([0.0]), np.array([-0.0])]
    assert len({shared.number(value) for value in (one, *others)}) == 6


def test_an_object_that_was_seen_stays() -> None:
    """An object that is made after another is gone may get its id."""
    shared = Shared()
    assert len({shared.number(TensorType(i64, [n])) for n in range(1000)}) == 1000


def test_regions_that_say_the_same_have_one_text():
    """Whatever their values are called and wherever they are: rules are kept by it, and layers that scatter are one function."""

    def text(name: str, operator: str, type_: str = "f32") -> str:
        context = Context(allow_unregistered=True)
        context.load_dialect(Builtin)
        module = Parser(
            context,
            f"""
            %c, %x = "test.op"() : () -> (i1, tensor<2x{type_}>)
            "test.op"(%c) ({{
              ^bb0(%{name}: tensor<2x{type_}>):
                %{name}_2 = "test.{operator}"(%{name}, %x) {{dist.name = "{name}"}} : (tensor<2x{type_}>, tensor<2x{type_}>) -> tensor<2x{type_}>
                "test.yield"(%{name}_2) : (tensor<2x{type_}>) -> ()
            }}) : (i1) -> ()""",
        ).parse_module()
        (found,) = texts_of_regions([op for op in module.ops][1])
        return found

    assert text("a", "add") == text("b", "add")
    assert len({text("a", "add"), text("a", "mul"), text("a", "add", "f64")}) == 3
