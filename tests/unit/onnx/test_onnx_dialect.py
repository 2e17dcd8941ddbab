"""The generated `onnx` dialect: schemas agree with the installed onnx, text keeps every bit of a constant."""

import subprocess
import sys
from io import StringIO

import ml_dtypes
import numpy as np
import onnx.defs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, FloatAttr, IntegerAttr, ModuleOp, TensorType, f32, f64, i64
from xdsl.dialects.func import Func
from xdsl.dialects.test import TestOp
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import ParseError, VerifyException

from distir.dialects.onnx import OPERATORS, OPSET_VERSION, Constant, NoValue, Onnx, TensorAttr
from distir.dialects.onnx.types import ELEMENTS

CONTEXT = Context()
for dialect in (Builtin, Func, Onnx):
    CONTEXT.load_dialect(dialect)


def reparsed(constant: Constant, generic: bool) -> Constant:
    stream = StringIO()
    Printer(stream, print_generic_format=generic).print_op(ModuleOp([constant]))
    module = Parser(CONTEXT, stream.getvalue()).parse_module()
    module.verify()
    (copy,) = module.ops
    assert isinstance(copy, Constant)
    return copy


def test_every_operator_of_the_installed_onnx_has_a_class() -> None:
    schemas = {schema.name: schema for schema in onnx.defs.get_all_schemas()}
    assert set(OPERATORS) == set(schemas)
    assert onnx.defs.onnx_opset_version() == OPSET_VERSION
    for name, schema in schemas.items():
        ours = OPERATORS[name].schema
        assert (ours.domain, ours.since_version) == (schema.domain, schema.since_version)
        assert [p.name for p in ours.inputs] == [p.name for p in schema.inputs]
        assert [p.name for p in ours.outputs] == [p.name for p in schema.outputs]
        assert {a.name for a in ours.attributes if a.required} == {
            name for name, attribute in schema.attributes.items() if attribute.required
        }


def test_what_draws_at_random_or_has_graphs_is_not_pure() -> None:
    """A function with an `If` among its nodes, such as AffineGrid, is as pure as its graphs."""
    with_graphs = {"If", "Loop", "Scan", "SequenceMap"}
    drawing = {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
    assert {name for name, operator in OPERATORS.items() if not operator.has_trait(Pure)} == with_graphs | drawing


def test_loading_the_dialect_imports_neither_numpy_nor_onnx() -> None:
    program = (
        "import sys, distir.dialects.onnx;"
        "print([m for m in ('numpy', 'onnx', 'ml_dtypes', 'google.protobuf') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# Every value that a byte pattern can give: infinities, nans with payloads, denormals, negative zero.
BYTE_PATTERNS = {
    element.numpy_name: element.itemsize
    for element in ELEMENTS
    if element.numpy_name not in ("object", "bool") and element.onnx_name[-1] not in "24"
}
FEW_VALUES = ("bool", "int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")


def dtype_named(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@given(
    name=st.sampled_from(sorted(set(BYTE_PATTERNS) - set(FEW_VALUES))),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    data=st.data(),
    generic=st.booleans(),
)
def test_constants_of_byte_wide_types_round_trip_bit_for_bit(
    name: str, shape: tuple[int, ...], data: st.DataObject, generic: bool
) -> None:
    size = BYTE_PATTERNS[name] * int(np.prod(shape))
    raw = data.draw(st.binary(min_size=size, max_size=size))
    array = np.frombuffer(raw, dtype=dtype_named(name)).reshape(shape)
    value = reparsed(Constant(TensorAttr.from_numpy(array)), generic).value.to_numpy()
    assert (value.dtype, value.shape) == (array.dtype, array.shape)
    assert value.tobytes() == raw


@given(
    name=st.sampled_from(FEW_VALUES),
    values=st.lists(st.sampled_from([-2, -1, 0, 1, 3]), max_size=80),
    generic=st.booleans(),
)
def test_constants_of_packed_types_round_trip(name: str, values: list[int], generic: bool) -> None:
    wrapped = [abs(v) for v in values] if name.startswith("uint") else values
    array = np.array(wrapped, dtype=np.float32).astype(dtype_named(name))
    value = reparsed(Constant(TensorAttr.from_numpy(array)), generic).value.to_numpy()
    assert value.dtype == array.dtype
    assert value.tobytes() == array.tobytes()


@given(values=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5), generic=st.booleans())
def test_constants_of_strings_round_trip(values: list[str], generic: bool) -> None:
    array = np.array(values, dtype=object)
    assert reparsed(Constant(TensorAttr.from_numpy(array)), generic).value.to_numpy().tolist() == values


def test_equal_elements_are_stored_once() -> None:
    attribute = TensorAttr.from_numpy(np.full((512, 512), 0.5, np.float32))
    assert len(attribute.data.data) == 4
    assert attribute.to_numpy().shape == (512, 512)
    assert attribute == TensorAttr.from_bytes(attribute.type, b"\x00\x00\x00\x3f" * 512 * 512)


def constant_error(text: str) -> str:
    with pytest.raises((ParseError, VerifyException)) as caught:
        Parser(CONTEXT, f"%0 = onnx.Constant {text}").parse_module()
    return str(caught.value)


def test_literals_that_do_not_fit_their_type_are_parse_errors() -> None:
    assert "shape [2]" in constant_error("dense<[1, 2]> : tensor<3xi64>")
    assert "rows differ" in constant_error("dense<[[1], [2, 3]]> : tensor<2x1xi64>")
    assert "out of range" in constant_error("dense<[300]> : tensor<1xi8>")
    assert "needs 12 bytes, got 8" in constant_error('dense<"0x0000000000000000"> : tensor<3xf32>')
    assert "static shape" in constant_error("dense<1> : tensor<?xi64>")


def operation(name: str, types: list[Attribute], result: Attribute, **properties: Attribute) -> None:
    source = TestOp(result_types=types)
    OPERATORS[name].create(operands=source.results, result_types=[result], properties=properties).verify()


def test_type_variables_are_verified() -> None:
    single, double = TensorType(f32, [2, 2]), TensorType(f64, [2, 2])
    operation("MatMul", [single, single], single)
    with pytest.raises(VerifyException, match=r"type variable T is already tensor\(float\)"):
        operation("MatMul", [single, double], single)
    with pytest.raises(VerifyException, match="'B' is required, got none"):
        operation("MatMul", [TensorType(f32, [2]), NoValue().none_val.type], single)
    with pytest.raises(VerifyException, match="axis"):
        operation("Concat", [single, single], single)
    with pytest.raises(VerifyException, match="alpha"):
        operation("LeakyRelu", [single], single, alpha=IntegerAttr(1, i64))
    operation("LeakyRelu", [single], single, alpha=FloatAttr(0.5, f32))
