"""The part of Shardy's `sdy` dialect that distir writes and reads (https://openxla.org/shardy/sdy_dialect): a mesh, shardings
of values, and sharding rules of operations, in Shardy's own syntax. `backends/shardy` translates to and from it.

    sdy.mesh @mesh = <["dp"=2, "tp"=4]>
    sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {"tp", ?}], unreduced={"pp"}>
    sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [j, k])->([i, k]) {i=4, j=8, k=6} reduction={j}>

A dim is cut along its axes from major to minor; `?` says that it may be cut further. A rule maps every dim to factors, from
major to minor; dims with the same factor are cut together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr, SymbolNameConstraint
from xdsl.ir import Data, Dialect
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, prop_def, traits_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

_SYMBOL = re.compile(r"z_\d+|[i-z]")


@dataclass(frozen=True)
class SdyMesh:
    """Named axes and their sizes, the last one fastest; `device_ids` where devices are in another order."""

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Axis:
    """A mesh axis, or the part of it of `size` that lies inside parts of `pre_size`."""

    name: str
    sub_axis: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f'"{self.name}"' + (f":({self.sub_axis[0]}){self.sub_axis[1]}" if self.sub_axis else "")


@dataclass(frozen=True)
class Dim:
    """The axes that cut one dim, major to minor."""

    axes: tuple[Axis, ...] = ()
    is_open: bool = False
    priority: int | None = None

    def __str__(self) -> str:
        texts = [*map(str, self.axes), *(["?"] if self.is_open else [])]
        return f"{{{', '.join(texts)}}}" + ("" if self.priority is None else f"p{self.priority}")


@dataclass(frozen=True)
class Sharding:
    """What one value is over a mesh."""

    mesh: str
    dims: tuple[Dim, ...]
    replicated: tuple[Axis, ...] = ()
    unreduced: tuple[Axis, ...] = ()

    def __str__(self) -> str:
        lists = [(n, a) for n, a in (("replicated", self.replicated), ("unreduced", self.unreduced)) if a]
        suffix = "".join(f", {name}={{{', '.join(map(str, axes))}}}" for name, axes in lists)
        return f"<@{self.mesh}, [{', '.join(map(str, self.dims))}]{suffix}>"


Mapping = tuple[tuple[int, ...], ...]
"""Per dim of a tensor its factors, major to minor."""


@dataclass(frozen=True)
class OpRule:
    """How an operation may be cut. Factors are indices into `sizes`."""

    operands: tuple[Mapping, ...]
    results: tuple[Mapping, ...]
    sizes: tuple[int, ...]
    reduction: tuple[int, ...] = ()
    """Cut, they leave addends."""
    need_replication: tuple[int, ...] = ()
    """They cannot be cut."""
    permutation: tuple[int, ...] = ()
    """Cut, they need elements of their neighbours."""
    blocked_propagation: tuple[int, ...] = ()
    is_custom: bool = False


SPECIAL = ("reduction", "need_replication", "permutation", "blocked_propagation")


def factor_symbol(factor: int) -> str:
    """Shardy's name of a factor: `i` to `z`, then `z_1`, `z_2`, ..."""
    return chr(ord("i") + factor) if factor < 18 else f"z_{factor - 17}"


def _factors(parser: AttrParser) -> tuple[int, ...]:
    """The factors of a dim, `ij` or `z_1z_2`; `*` is none."""
    if parser.parse_optional_punctuation("*"):
        return ()
    text = parser.parse_identifier("a factor")
    symbols = _SYMBOL.findall(text)
    if "".join(symbols) != text:
        parser.raise_error(f"expected factors (i to z, z_1, z_2, ...), got {text}")
    return tuple(17 + int(s[2:]) if len(s) > 1 else ord(s) - ord("i") for s in symbols)


def _factor(parser: AttrParser) -> int:
    factors = _factors(parser)
    if len(factors) != 1:
        parser.raise_error("expected one factor")
    return factors[0]


def _parse_axis(parser: AttrParser) -> Axis:
    name = parser.parse_str_literal()
    if parser.parse_optional_punctuation(":") is None:
        return Axis(name)
    with parser.in_parens():
        pre_size = parser.parse_integer()
    return Axis(name, (pre_size, parser.parse_integer()))


def _parse_dim(parser: AttrParser) -> Dim:
    axes: list[Axis] = []
    is_open = False
    parser.parse_punctuation("{")
    while parser.parse_optional_punctuation("}") is None:
        if axes:
            parser.parse_punctuation(",")
        if parser.parse_optional_punctuation("?"):
            is_open = True
            parser.parse_punctuation("}")
            break
        axes.append(_parse_axis(parser))
    priority = parser.parse_optional_identifier()
    if priority is not None and not re.fullmatch(r"p\d+", priority):
        parser.raise_error(f"expected a priority such as p1, got {priority}")
    return Dim(tuple(axes), is_open, None if priority is None else int(priority[1:]))


def _parse_sharding(parser: AttrParser) -> Sharding:
    lists: dict[str, tuple[Axis, ...]] = {}
    with parser.in_angle_brackets():
        mesh = parser.parse_symbol_name().data
        parser.parse_punctuation(",")
        dims = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_dim(parser))
        while parser.parse_optional_punctuation(","):
            name = parser.parse_identifier("replicated or unreduced")
            if name not in ("replicated", "unreduced"):
                parser.raise_error(f"expected replicated or unreduced, got {name}")
            parser.parse_punctuation("=")
            axes = parser.parse_comma_separated_list(parser.Delimiter.BRACES, lambda: _parse_axis(parser))
            lists[name] = tuple(axes)
    return Sharding(mesh, tuple(dims), lists.get("replicated", ()), lists.get("unreduced", ()))


@irdl_attr_definition
class MeshAttr(Data[SdyMesh]):
    """`#sdy.mesh<["dp"=2, "tp"=4]>`."""

    name = "sdy.mesh"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> SdyMesh:
        def parse_axis() -> tuple[str, int]:
            name = parser.parse_str_literal()
            parser.parse_punctuation("=")
            return name, parser.parse_integer()

        devices: list[int] = []
        with parser.in_angle_brackets():
            axes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_axis)
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("device_ids")
                parser.parse_punctuation("=")
                devices = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        return SdyMesh(tuple(axes), tuple(devices))

    def print_parameter(self, printer: Printer) -> None:
        axes = ", ".join(f'"{name}"={size}' for name, size in self.data.axes)
        devices = f", device_ids={list(self.data.device_ids)}" if self.data.device_ids else ""
        printer.print_string(f"<[{axes}]{devices}>")


@irdl_attr_definition
class ShardingAttr(Data[Sharding]):
    """`#sdy.sharding<@mesh, [{"dp"}, {?}], unreduced={"tp"}>`: on arguments and results of functions."""

    name = "sdy.sharding"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Sharding:
        return _parse_sharding(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(str(self.data))


@irdl_attr_definition
class ShardingPerValueAttr(Data[tuple[Sharding, ...]]):
    """`#sdy.sharding_per_value<[<@mesh, [{"dp"}, {}]>]>`: one per result of an operation."""

    name = "sdy.sharding_per_value"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Sharding, ...]:
        with parser.in_angle_brackets():
            found = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_sharding(parser))
        return tuple(found)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<[{', '.join(map(str, self.data))}]>")


@irdl_attr_definition
class OpShardingRuleAttr(Data[OpRule]):
    """`#sdy.op_sharding_rule<([i, j])->([ij]) {i=4, j=8}>`."""

    name = "sdy.op_sharding_rule"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> OpRule:
        def parse_mapping() -> Mapping:
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _factors(parser)))

        def parse_mappings() -> tuple[Mapping, ...]:
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_mapping))

        def parse_size() -> tuple[int, int]:
            factor = _factor(parser)
            parser.parse_punctuation("=")
            return factor, parser.parse_integer()

        special: dict[str, tuple[int, ...]] = {}
        custom = False
        with parser.in_angle_brackets():
            operands = parse_mappings()
            parser.parse_punctuation("->")
            results = parse_mappings()
            listed = parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, parse_size) or []
            if [factor for factor, _ in listed] != list(range(len(listed))):
                parser.raise_error("expected the sizes of factors in order: {i=2, j=3, ...}")
            while (name := parser.parse_optional_identifier()) is not None:
                if name not in SPECIAL:
                    parser.raise_error(f"expected one of {', '.join(SPECIAL)}, got {name}")
                parser.parse_punctuation("=")
                special[name] = tuple(
                    parser.parse_comma_separated_list(parser.Delimiter.BRACES, lambda: _factor(parser))
                )
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("custom")
                custom = True
        return OpRule(operands, results, tuple(size for _, size in listed), **special, is_custom=custom)

    def print_parameter(self, printer: Printer) -> None:
        rule = self.data

        def symbols(factors: Sequence[int], separator: str) -> str:
            return separator.join(map(factor_symbol, factors))

        def mappings(tensors: Sequence[Mapping]) -> str:
            return ", ".join(f"[{', '.join(symbols(dim, '') or '*' for dim in dims)}]" for dims in tensors)

        text = f"<({mappings(rule.operands)})->({mappings(rule.results)})"
        if rule.sizes:
            text += f" {{{', '.join(f'{factor_symbol(f)}={size}' for f, size in enumerate(rule.sizes))}}}"
        lists = zip(
            SPECIAL,
            (rule.reduction, rule.need_replication, rule.permutation, rule.blocked_propagation),
            strict=True,
        )
        text += "".join(f" {name}={{{symbols(factors, ', ')}}}" for name, factors in lists if factors)
        printer.print_string(text + (", custom>" if rule.is_custom else ">"))

    def verify(self) -> None:
        rule = self.data
        named = {f for tensor in (*rule.operands, *rule.results) for dim in tensor for f in dim}
        if named != set(range(len(rule.sizes))):
            raise VerifyException(f"expected factors 0 to {len(rule.sizes) - 1} in the mappings, got {sorted(named)}")
        for tensor in (*rule.operands, *rule.results):
            factors = [f for dim in tensor for f in dim]
            if len(set(factors)) != len(factors):
                raise VerifyException("a tensor carries a factor twice")
        special = [*rule.reduction, *rule.need_replication, *rule.permutation]
        if len(set(special)) != len(special):
            raise VerifyException("a factor can be only one of reduction, need_replication and permutation")


@irdl_op_definition
class MeshOp(IRDLOperation):
    """`sdy.mesh @mesh = <["dp"=2, "tp"=4]>`.

    Lifecycle: an export makes it of `dist.mesh`, an import turns it back."""

    name = "sdy.mesh"
    sym_name = prop_def(SymbolNameConstraint())
    mesh = prop_def(MeshAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(self, name: str, mesh: SdyMesh):
        super().__init__(properties={"sym_name": StringAttr(name), "mesh": MeshAttr(mesh)})

    @classmethod
    def parse(cls, parser: Parser) -> MeshOp:
        name = parser.parse_symbol_name()
        parser.parse_punctuation("=")
        mesh = MeshAttr(MeshAttr.parse_parameter(parser))
        attributes = parser.parse_optional_attr_dict()
        return cls.create(properties={"sym_name": name, "mesh": mesh}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" = ")
        self.mesh.print_parameter(printer)
        printer.print_op_attributes(self.attributes)


Sdy = Dialect("sdy", [MeshOp], [MeshAttr, OpShardingRuleAttr, ShardingAttr, ShardingPerValueAttr])
