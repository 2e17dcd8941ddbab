"""The `aten` dialect: PyTorch's operators, one operation class per functional overload, generated from their schemas.

`OPERATORS["aten.mm"]` is the class of `torch.ops.aten.mm.default`, `OPERATORS["aten.add.Tensor"]` that of
`torch.ops.aten.add.Tensor`. Nothing is written per operator; importing this does not import torch. The mapping:

    schema                                   operation
    Tensor                                   an operand
    Tensor?                                  an optional operand
    Tensor[], Tensor?[]                      a variadic operand; of Tensor?[], the property `<name>_given` says which are there
    int, float, bool, Scalar, str            a property: `3 : i64`, `1.0e-05 : f64`, `true`, `"none"`
    int[], float[], bool[]                   a property: `array<i64: 1, 2>`, `[0.5 : f64]`, `[true, false]`
    ScalarType                               a property: the element type, as in `dtype = bf16`
    Device, Layout, MemoryFormat, Generator  nothing: a value is a tensor in no particular memory
    what has its default value               nothing
    a result Tensor                          a result; of type `none` where the operator was told not to compute it

Overloads that write to their arguments are not in the dialect: programs have values, not memory.
"""

from xdsl.ir import Dialect

from distir.dialects.aten.operators import OPERATORS, AtenOperation
from distir.dialects.aten.schemas import Argument, Schema

__all__ = ["OPERATORS", "Argument", "Aten", "AtenOperation", "Schema"]

Aten = Dialect("aten", list(OPERATORS.values()), [])
