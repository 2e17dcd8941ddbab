"""The generated `aten` dialect: schemas, text, verifier, and what it costs to have."""

import subprocess
import sys

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from distir.dialects.aten import OPERATORS, Aten

T = "tensor<2x3xf32>"


def parse(body: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Aten):
        context.load_dialect(dialect)
    text = f"func.func @main(%x: {T}, %i: tensor<2xi64>) {{\n  {body}\n  func.return\n}}"
    return Parser(context, text).parse_module()


def test_schemas_are_those_of_torch() -> None:
    import torch

    for name in ("aten.mm", "aten.add.Tensor", "aten.convolution_backward", "aten.index.Tensor", "aten.split.Tensor"):
        schema = OPERATORS[name].schema
        theirs = getattr(getattr(torch.ops.aten, schema.packet), schema.overload)._schema
        assert [a.name for a in schema.arguments] == [a.name for a in theirs.arguments]
        assert [a.keyword_only for a in schema.arguments] == [a.kwarg_only for a in theirs.arguments]
        assert [a.optional for a in schema.arguments] == [str(a.type).startswith("Optional") for a in theirs.arguments]
        assert len(schema.results) == len(theirs.returns)


def test_every_operator_has_a_definition() -> None:
    for operator in OPERATORS.values():
        operator.get_irdl_definition()
    assert len(OPERATORS) > 1500


TEXTS = [
    f'%r = "aten.sum.dim_IntList"(%x) <{{dim = array<i64: 0>, keepdim = true}}> : ({T}) -> tensor<1x3xf32>',
    f'%r = "aten.mul.Scalar"(%x) <{{other = 0.10000000000000001 : f64}}> : ({T}) -> {T}',
    f'%r = "aten.masked_fill.Scalar"(%x, %x) <{{value = 0xfff0000000000000 : f64}}> : ({T}, {T}) -> {T}',
    f'%r = "aten._to_copy"(%x) <{{dtype = bf16}}> : ({T}) -> tensor<2x3xbf16>',
    f'%r = "aten.index.Tensor"(%x, %i) <{{indices_given = [false, true]}}> : ({T}, tensor<2xi64>) -> tensor<2x2xf32>',
    f'%r, %s = "aten.split.Tensor"(%x) <{{split_size = 1 : i64}}> : ({T}) -> (tensor<1x3xf32>, tensor<1x3xf32>)',
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trips(text: str) -> None:
    module = parse(text)
    module.verify()
    printed = str(module)
    context = Context()
    for dialect in (Builtin, Func, Aten):
        context.load_dialect(dialect)
    assert str(Parser(context, printed).parse_module()) == printed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'%r = "aten.mm"(%x) : ({T}) -> {T}', "Expected 2 operands"),
        (f'%r = "aten.sum.dim_IntList"(%x) <{{dim = 1 : i64}}> : ({T}) -> {T}', "dim"),
        (f'%r = "aten.relu"(%x) <{{alpha = 1 : i64}}> : ({T}) -> {T}', "alpha"),
        (f'%r = "aten.softplus"(%x) <{{beta = "one"}}> : ({T}) -> {T}', "beta"),
    ],
)
def test_the_schema_is_verified(text: str, said: str) -> None:
    with pytest.raises(VerifyException, match=said):
        parse(text).verify()


def test_a_program_is_read_without_torch() -> None:
    code = (
        "import sys; from distir.tools.opt_driver import DistirOptMain\n"
        "import distir.dialects.aten\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
