"""Collectives with a root. In goes a tensor, on ranks that contribute; out comes a result, on ranks that receive."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_operand_def, opt_result_def, prop_def
from xdsl.utils.exceptions import VerifyException

from distir.dialects.dist.checks import dim_property
from distir.dialects.rank.operations import GroupOp, group_array
from distir.dialects.reductions import Reduction, ReductionAttr


class RootedOp(GroupOp, ABC):
    """A collective with a root: an operand where this rank contributes, a result where it receives."""

    input = opt_operand_def(TensorType)
    root = prop_def(IntegerAttr[I64])
    output = opt_result_def(TensorType)

    def __init__(
        self,
        input: SSAValue | None,
        root: int,
        group: Sequence[int],
        result_type: Attribute | None,
        properties: Mapping[str, Attribute] | None = None,
    ):
        super().__init__(
            operands=[_optional(input)],
            result_types=[_optional(result_type)],
            properties={"group": group_array(group), "root": dim_property(root), **(properties or {})},
        )

    def verify_(self) -> None:
        super().verify_()
        if self.input is None and self.output is None:
            raise VerifyException("expected an operand, a result or both")
        self.verify_members("the root", [self.root.value.data])

    def verify_members(self, what: str, ranks: Sequence[int]) -> None:
        """These ranks belong to the group."""
        if outside := [r for r in ranks if r not in self.ranks]:
            raise VerifyException(f"expected {what} in the group {list(self.ranks)}, got {outside}")


def _optional(value: SSAValue | Attribute | None) -> list[Any]:
    return [] if value is None else [value]


@irdl_op_definition
class BroadcastOp(RootedOp):
    """The root has the operand; every receiver has the result: `%r = rank.broadcast root 0 group [0, 1] : () -> T`.
    `group` lists the root first if it does not receive, then the receivers."""

    name = "rank.broadcast"
    assembly_format = (
        "($input^)? `root` $root `group` custom<Devices>($group) attr-dict `:` functional-type($input, $output)"
    )


@irdl_op_definition
class ScatterOp(RootedOp):
    """The root has the operand; the i-th receiver gets part i along `dim`. `receivers` is in part order."""

    name = "rank.scatter"
    dim = prop_def(IntegerAttr[I64])
    receivers = prop_def(DenseArrayBase[I64])
    assembly_format = (
        "($input^)? `dim` $dim `root` $root `receivers` custom<Devices>($receivers) `group` custom<Devices>($group)"
        " attr-dict `:` functional-type($input, $output)"
    )

    def __init__(
        self,
        input: SSAValue | None,
        dim: int,
        root: int,
        receivers: Sequence[int],
        group: Sequence[int],
        result_type: Attribute | None,
    ):
        properties = {"dim": dim_property(dim), "receivers": group_array(receivers)}
        super().__init__(input, root, group, result_type, properties)

    def verify_shapes(self) -> None:
        self.verify_members("the receivers", [int(r) for r in self.receivers.get_values()])


class ToRootOp(RootedOp, ABC):
    """Contributors have the operand, the root has the result."""

    contributors = prop_def(DenseArrayBase[I64])

    def verify_shapes(self) -> None:
        self.verify_members("the contributors", [int(r) for r in self.contributors.get_values()])


@irdl_op_definition
class GatherOp(ToRootOp):
    """The root gets all operands concatenated along `dim`, in the order of `contributors`."""

    name = "rank.gather"
    dim = prop_def(IntegerAttr[I64])
    assembly_format = (
        "($input^)? `dim` $dim `root` $root `contributors` custom<Devices>($contributors)"
        " `group` custom<Devices>($group) attr-dict `:` functional-type($input, $output)"
    )

    def __init__(
        self,
        input: SSAValue | None,
        dim: int,
        root: int,
        contributors: Sequence[int],
        group: Sequence[int],
        result_type: Attribute | None,
    ):
        properties = {"dim": dim_property(dim), "contributors": group_array(contributors)}
        super().__init__(input, root, group, result_type, properties)


@irdl_op_definition
class ReduceOp(ToRootOp):
    """The root gets the reduction of all operands."""

    name = "rank.reduce"
    reduction = prop_def(ReductionAttr)
    assembly_format = (
        "$reduction ($input^)? `root` $root `contributors` custom<Devices>($contributors)"
        " `group` custom<Devices>($group) attr-dict `:` functional-type($input, $output)"
    )

    def __init__(
        self,
        input: SSAValue | None,
        reduction: Reduction,
        root: int,
        contributors: Sequence[int],
        group: Sequence[int],
        result_type: Attribute | None,
    ):
        properties = {"reduction": ReductionAttr(reduction), "contributors": group_array(contributors)}
        super().__init__(input, root, group, result_type, properties)
