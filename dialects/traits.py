"""Traits that operations of several dialects have, for analyses that must not know the operations."""

from xdsl.traits import OpTrait


class ViewOfFirstOperand(OpTrait):
    """The results share the memory of operand 0 and take no time."""
