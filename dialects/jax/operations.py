"""The operation classes of the `jax` dialect. In goes a primitive's name; out comes its generated class. Two more
are no primitives: constants, and the end of a region."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, OpTraits, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import ConstantLike, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from distir.dialects.onnx.tensors import TensorAttr, without_encoding

REGIONS = "regions"
"""The property that names the regions of an operation: per region, the parameter that it is."""


class JaxOperation(Operation):
    """Base of all primitives: tensors in, tensors out, the primitive's parameters as properties.

    Lifecycle: the JAX frontend creates them at level 1; every pass treats them like any operator."""

    primitive: ClassVar[str]
    traits = OpTraits(lambda: (Pure(),))

    def verify_(self) -> None:
        for kind, values in (("operand", self.operands), ("result", self.results)):
            for i, value in enumerate(values):
                if not isinstance(value.type, TensorType):
                    raise VerifyException(f"expected {kind} {i} to be a tensor, got {value.type}")
        names = self.region_names()
        if len(names) != len(self.regions):
            raise VerifyException(f"expected a name for each region, got {len(names)} for {len(self.regions)}")
        for name, region in zip(names, self.regions, strict=True):
            if len(region.blocks) != 1 or not isinstance(region.block.last_op, Yield):
                raise VerifyException(f"expected region '{name}' to be one block that ends with jax.yield")
        placements = {cast(TensorType[Any], v.type).encoding for v in (*self.operands, *self.results)}
        if len(placements) > 1:
            raise VerifyException(f"expected one placement, got {', '.join(sorted(map(str, placements)))}")

    def region_names(self) -> list[str]:
        """The parameter that each region is."""
        names = self.properties.get(REGIONS, ArrayAttr([]))
        if not isinstance(names, ArrayAttr):
            raise VerifyException(f"expected '{REGIONS}' to be an array of names, got {names}")
        entries = cast(ArrayAttr[Attribute], names).data
        return [entry.data if isinstance(entry, StringAttr) else str(entry) for entry in entries]


def _primitive_class(primitive: str) -> type[JaxOperation]:
    name = "".join(word.capitalize() for word in primitive.replace("-", "_").split("_")) + "Op"
    members = {
        "name": f"jax.{primitive}",
        "primitive": primitive,
        "__doc__": f"The JAX primitive `{primitive}`.",
        "__module__": __name__,
    }
    return type(name, (JaxOperation,), members)


PRIMITIVES: dict[str, type[JaxOperation]] = {
    name: _primitive_class(name)
    for name in json.loads((Path(__file__).parent / "primitives.json").read_text("utf-8"))["primitives"]
}
"""The operation class of each primitive, by the primitive's name."""


@irdl_op_definition
class Constant(IRDLOperation):
    """A literal or a captured array of a jaxpr, exact in memory and in text."""

    name = "jax.constant"
    value = prop_def(TensorAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure(), ConstantLike())

    def __init__(self, value: TensorAttr, result_type: Attribute | None = None) -> None:
        super().__init__(properties={"value": value}, result_types=[result_type or value.type])

    def verify_(self) -> None:
        if without_encoding(self.result.type) != self.value.type:
            raise VerifyException(f"expected a result of type {self.value.type}, got {self.result.type}")


@irdl_op_definition
class Yield(IRDLOperation):
    """Ends a region with the results of its jaxpr."""

    name = "jax.yield"
    arguments = var_operand_def()
    traits = traits_def(IsTerminator())

    def __init__(self, *arguments: SSAValue) -> None:
        super().__init__(operands=[list(arguments)])
