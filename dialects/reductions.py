"""The reductions of a partial sum: `sum`, `mean`, `max`, `min`, `prod`. In goes a name in the text; out comes a
Python value, and an attribute."""

from enum import auto

from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.str_enum import StrEnum


class Reduction(StrEnum):
    """How addends of a partial value combine (`mean` weighs all addends alike)."""

    SUM = auto()
    MEAN = auto()
    MAX = auto()
    MIN = auto()
    PROD = auto()


@irdl_attr_definition
class ReductionAttr(EnumAttribute[Reduction], SpacedOpaqueSyntaxAttribute):
    """A reduction as an attribute: `sum`, `mean`, `max`, `min`, `prod`."""

    name = "dist.reduction"
