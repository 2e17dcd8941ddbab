"""Sharding as attributes (level 2): the mesh, the rule that ShardCombine found for an op, the strategy chosen for it,
and the sharding of a value. They print as part of the `dist` dialect.

A rule names the *factors* of an op: dims that carry the same factor are cut together, and its combine says how the
results of the shards become the whole result (MetaDist's ShardSpec and CombineSpec in one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import StringAttr, SymbolNameConstraint
from xdsl.ir import Data
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, prop_def, traits_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from distir.dialects.reductions import Reduction

# --- states: what one value is along one mesh axis -------------------------------------------------------------------


@dataclass(frozen=True)
class Replicated:
    """Every shard holds the whole value."""


@dataclass(frozen=True)
class Sharded:
    """Dim `dim` is a sequence of pieces, each cut evenly over the axis; shard i holds the i-th part of every piece."""

    dim: int
    pieces: tuple[int, ...]


@dataclass(frozen=True)
class Partial:
    """Every shard holds an addend of the whole shape; the reduction of all is the value."""

    reduction: Reduction


State = Replicated | Sharded | Partial
REPLICATED = Replicated()

# --- rules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputDim:
    """One dim of an operand: the factor it carries (None is the paper's NoShardDim) and how shards of it are cut."""

    factor: str | None = None
    halo: int = 0
    pieces: tuple[int, ...] = ()
    """Relative sizes of the segments that are each cut evenly; empty is one segment."""


@dataclass(frozen=True)
class Gather:
    """The shards' results concatenate along `dim` (per piece)."""

    dim: int
    halo: int = 0
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reduce:
    """The shards' results are addends."""

    reduction: Reduction


@dataclass(frozen=True)
class Identity:
    """Every shard computes the whole result."""


Combine = Gather | Reduce | Identity


@dataclass(frozen=True)
class PartialRule:
    """Partial `operands` (the others replicated, or cut along `factor`) give partial `results`."""

    reduction: Reduction
    operands: tuple[int, ...]
    results: tuple[int, ...]
    factor: str | None = None


@dataclass(frozen=True)
class Rule:
    """All ways found to run an op on shards."""

    inputs: tuple[tuple[InputDim, ...], ...]
    combines: Mapping[str, tuple[Combine, ...]]
    sizes: Mapping[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    partials: tuple[PartialRule, ...] = ()
    offsets: tuple[str, ...] = ()
    found: str = "exact"

    def __hash__(self) -> int:
        return hash((self.inputs, tuple(self.combines.items()), tuple(self.sizes.items()), self.partials, self.found))

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(self.combines)

    def partner(self, factor: str) -> PartialRule | None:
        """The partial operands that `factor` needs beside its cut dims (a bias in a split contraction)."""
        return next((p for p in self.partials if p.factor == factor), None)


def _parse_pieces(parser: AttrParser) -> tuple[int, ...]:
    parser.parse_punctuation("=")
    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))


def _parse_options(parser: AttrParser) -> tuple[int, tuple[int, ...]]:
    """`halo = 1, pieces = [1, 1]` in any order, until the closing parenthesis."""
    halo, pieces = 0, ()
    while True:
        keyword = parser.parse_identifier("`halo` or `pieces`")
        if keyword == "halo":
            parser.parse_punctuation("=")
            halo = parser.parse_integer()
        elif keyword == "pieces":
            pieces = _parse_pieces(parser)
        else:
            parser.raise_error(f"expected `halo` or `pieces`, got `{keyword}`")
        if parser.parse_optional_punctuation(",") is None:
            return halo, pieces


def _format_options(halo: int, pieces: Sequence[int]) -> list[str]:
    return ([f"halo = {halo}"] if halo else []) + ([f"pieces = {list(pieces)}"] if pieces else [])


def _parse_input_dim(parser: AttrParser) -> InputDim:
    factor = parser.parse_identifier("a factor such as S1, or _")
    if factor == "_":
        return InputDim()
    if parser.parse_optional_punctuation("("):
        halo, pieces = _parse_options(parser)
        parser.parse_punctuation(")")
        return InputDim(factor, halo, pieces)
    return InputDim(factor)


def _format_input_dim(dim: InputDim) -> str:
    options = _format_options(dim.halo, dim.pieces)
    return (dim.factor or "_") + (f"({', '.join(options)})" if options else "")


def _parse_combine(parser: AttrParser) -> Combine:
    kind = parser.parse_identifier("gather, reduce or identity")
    if kind == "identity":
        return Identity()
    if kind not in ("gather", "reduce"):
        parser.raise_error(f"expected gather, reduce or identity, got {kind}")
    parser.parse_punctuation("(")
    if kind == "reduce":
        combine: Combine = Reduce(parser.parse_str_enum(Reduction))
    else:
        dim = parser.parse_integer()
        options = _parse_options(parser) if parser.parse_optional_punctuation(",") else (0, ())
        combine = Gather(dim, *options)
    parser.parse_punctuation(")")
    return combine


def _format_combine(combine: Combine) -> str:
    match combine:
        case Identity():
            return "identity"
        case Reduce(reduction):
            return f"reduce({reduction})"
        case Gather(dim, halo, pieces):
            return f"gather({', '.join([str(dim), *_format_options(halo, pieces)])})"


def _parse_partial(parser: AttrParser) -> PartialRule:
    reduction = parser.parse_str_enum(Reduction)
    parser.parse_punctuation(":")
    factor = parser.parse_optional_identifier()
    if factor is not None:
        parser.parse_punctuation(",")

    def parse_integers() -> tuple[int, ...]:
        if parser.parse_optional_punctuation("("):
            values = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_integer)
            parser.parse_punctuation(")")
            return tuple(values)
        return (parser.parse_integer(),)

    operands = parse_integers()
    parser.parse_punctuation("->")
    return PartialRule(reduction, operands, parse_integers(), factor)


def _format_partial(rule: PartialRule) -> str:
    def integers(values: tuple[int, ...]) -> str:
        return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"

    factor = f"{rule.factor}, " if rule.factor else ""
    return f"{rule.reduction}: {factor}{integers(rule.operands)} -> {integers(rule.results)}"


@irdl_attr_definition
class RuleAttr(Data[Rule]):
    """`#dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>`.

    Lifecycle: `shardcombine-annotate` adds it, the search reads it, `apply-sharding` removes it."""

    name = "dist.rule"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Rule:
        def parse_dims() -> tuple[InputDim, ...]:
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_input_dim(parser)))

        def parse_entry() -> tuple[str, tuple[Combine, ...]]:
            factor = parser.parse_identifier("a factor")
            parser.parse_punctuation(":")
            combines = parser.parse_optional_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: _parse_combine(parser)
            )
            return factor, tuple(combines) if combines is not None else (_parse_combine(parser),)

        def parse_size() -> tuple[tuple[str, int], str]:
            slot = parser.parse_identifier("an attribute or operand name")
            with parser.in_square_brackets():
                index = parser.parse_integer()
            parser.parse_punctuation(":")
            return (slot, index), parser.parse_identifier("a factor")

        sizes: dict[tuple[str, int], str] = {}
        partials: tuple[PartialRule, ...] = ()
        offsets: tuple[str, ...] = ()
        found = "exact"
        with parser.in_angle_brackets():
            inputs: list[tuple[InputDim, ...]] = []
            if parser.parse_optional_punctuation("->") is None:
                inputs = parser.parse_comma_separated_list(parser.Delimiter.NONE, parse_dims)
                parser.parse_punctuation("->")
            combines = dict(parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_entry))
            while parser.parse_optional_punctuation(","):
                key = parser.parse_identifier("sizes, partial, offset or found")
                parser.parse_punctuation("=")
                if key == "sizes":
                    sizes = dict(parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_size))
                elif key == "partial":
                    partials = tuple(
                        parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_partial(parser))
                    )
                elif key == "offset":
                    offsets = (parser.parse_identifier("a factor"),)
                elif key == "found":
                    found = parser.parse_identifier("exact or probed")
                else:
                    parser.raise_error(f"expected sizes, partial, offset or found, got {key}")
        return Rule(tuple(inputs), combines, sizes, partials, offsets, found)

    def print_parameter(self, printer: Printer) -> None:
        rule = self.data
        inputs = ", ".join(f"[{', '.join(map(_format_input_dim, dims))}]" for dims in rule.inputs)

        def combine_text(combines: tuple[Combine, ...]) -> str:
            texts = [_format_combine(c) for c in combines]
            return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

        parts = ["{" + ", ".join(f"{f}: {combine_text(c)}" for f, c in rule.combines.items()) + "}"]
        if rule.sizes:
            parts.append("sizes = {" + ", ".join(f"{n}[{i}]: {f}" for (n, i), f in rule.sizes.items()) + "}")
        if rule.partials:
            parts.append(f"partial = [{', '.join(map(_format_partial, rule.partials))}]")
        parts += [f"offset = {factor}" for factor in rule.offsets]
        parts.append(f"found = {rule.found}")
        with printer.in_angle_brackets():
            printer.print_string(f"{inputs} -> {', '.join(parts)}" if inputs else f"-> {', '.join(parts)}")

    def verify(self) -> None:
        rule = self.data
        if rule.found not in ("exact", "probed"):
            raise VerifyException(f"expected found = exact or probed, got {rule.found}")
        named = {d.factor for dims in rule.inputs for d in dims} | set(rule.sizes.values())
        for factor in rule.combines:
            if factor not in named:
                raise VerifyException(f"factor {factor} is combined but no input dim or size carries it")
        if len({len(c) for c in rule.combines.values()}) > 1:
            raise VerifyException("expected one combine per result for every factor")


# --- strategies ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UseFactor:
    """Cut the op along a factor; `pieces` is how the factor itself is cut (empty: evenly, as one piece)."""

    factor: str
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True)
class UsePartial:
    """Pass partial values through, by entry `index` of the rule's `partial` list."""

    index: int


@dataclass(frozen=True)
class Replicate:
    """Every shard runs the whole op."""


Choice = UseFactor | UsePartial | Replicate


@irdl_attr_definition
class StrategyAttr(Data[tuple[str, tuple[tuple[str, Choice], ...]]]):
    """What an op does along each axis of a mesh: `#dist.strategy<@mesh, {"dp": S1, "tp": S3}>`; `_` replicates,
    `S3(pieces = [8, 8])` cuts in pieces, `partial(0)` passes partial values through.

    Lifecycle: a search adds it, `apply-sharding` removes it."""

    name = "dist.strategy"

    @staticmethod
    def of(mesh: str, choices: Mapping[str, Choice]) -> StrategyAttr:
        return StrategyAttr((mesh, tuple(choices.items())))

    @property
    def choices(self) -> dict[str, Choice]:
        return dict(self.data[1])

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, tuple[tuple[str, Choice], ...]]:
        def parse_choice() -> tuple[str, Choice]:
            axis = parser.parse_str_literal()
            parser.parse_punctuation(":")
            name = parser.parse_identifier("a factor, partial or _")
            if name == "_":
                return axis, Replicate()
            if name == "partial":
                with parser.in_parens():
                    return axis, UsePartial(parser.parse_integer())
            if parser.parse_optional_punctuation("("):
                _, pieces = _parse_options(parser)
                parser.parse_punctuation(")")
                return axis, UseFactor(name, pieces)
            return axis, UseFactor(name)

        with parser.in_angle_brackets():
            mesh = parser.parse_symbol_name().data
            parser.parse_punctuation(",")
            choices = parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_choice)
        return mesh, tuple(choices)

    def print_parameter(self, printer: Printer) -> None:
        def text(choice: Choice) -> str:
            match choice:
                case Replicate():
                    return "_"
                case UsePartial(index):
                    return f"partial({index})"
                case UseFactor(factor, pieces):
                    return factor + (f"(pieces = {list(pieces)})" if pieces else "")

        mesh, choices = self.data
        with printer.in_angle_brackets():
            entries = ", ".join(f'"{axis}": {text(choice)}' for axis, choice in choices)
            printer.print_string(f"@{mesh}, {{{entries}}}")


@irdl_attr_definition
class ShardingAttr(Data[tuple[str, int, tuple[tuple[str, State], ...]]]):
    """What a value is along each axis: `#dist.sharding<@mesh, [{"dp"}, {"tp"}], partial = {"pp": sum}>`; axes that are
    not named replicate. Pieces follow the axis: `[{}, {"tp" [8, 8, 8]}]`."""

    name = "dist.sharding"

    @staticmethod
    def of(mesh: str, rank: int, states: Mapping[str, State]) -> ShardingAttr:
        return ShardingAttr((mesh, rank, tuple((a, s) for a, s in states.items() if s != REPLICATED)))

    @property
    def states(self) -> dict[str, State]:
        return dict(self.data[2])

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, int, tuple[tuple[str, State], ...]]:
        states: list[tuple[str, State]] = []
        dim = -1

        def parse_axis() -> None:
            axis = parser.parse_str_literal()
            pieces = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            states.append((axis, Sharded(dim, tuple(pieces or ()))))

        def parse_dim() -> None:
            nonlocal dim
            dim += 1
            parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_axis)

        def parse_partial() -> None:
            axis = parser.parse_str_literal()
            parser.parse_punctuation(":")
            states.append((axis, Partial(parser.parse_str_enum(Reduction))))

        with parser.in_angle_brackets():
            mesh = parser.parse_symbol_name().data
            parser.parse_punctuation(",")
            parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_dim)
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("partial")
                parser.parse_punctuation("=")
                parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_partial)
        return mesh, dim + 1, tuple(states)

    def print_parameter(self, printer: Printer) -> None:
        mesh, rank, states = self.data

        def axis_text(axis: str, state: Sharded) -> str:
            return f'"{axis}"' + (f" {list(state.pieces)}" if len(state.pieces) > 1 else "")

        dims = [
            "{" + ", ".join(axis_text(a, s) for a, s in states if isinstance(s, Sharded) and s.dim == d) + "}"
            for d in range(rank)
        ]
        partials = [f'"{a}": {s.reduction}' for a, s in states if isinstance(s, Partial)]
        with printer.in_angle_brackets():
            suffix = f", partial = {{{', '.join(partials)}}}" if partials else ""
            printer.print_string(f"@{mesh}, [{', '.join(dims)}]{suffix}")


# --- the mesh --------------------------------------------------------------------------------------------------------


@irdl_attr_definition
class AxesAttr(Data[tuple[tuple[str, int], ...]]):
    """Named axes and their sizes, the last one fastest: `#dist.axes<["dp" = 2, "tp" = 4]>`."""

    name = "dist.axes"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[str, int], ...]:
        def parse_axis() -> tuple[str, int]:
            axis = parser.parse_str_literal()
            parser.parse_punctuation("=")
            return axis, parser.parse_integer()

        with parser.in_angle_brackets():
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_axis))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("[" + ", ".join(f'"{axis}" = {size}' for axis, size in self.data) + "]")

    def verify(self) -> None:
        for axis, size in self.data:
            if size < 1:
                raise VerifyException(f'expected axis "{axis}" of size at least 1, got {size}')
        if len({axis for axis, _ in self.data}) != len(self.data):
            raise VerifyException(f"expected distinct axes, got {[axis for axis, _ in self.data]}")


@irdl_op_definition
class MeshOp(IRDLOperation):
    """The mesh of an annotated module: `dist.mesh @mesh = <["dp" = 2, "tp" = 4]>`.

    Lifecycle: a search or the user adds it, `apply-sharding` removes it and sets `dist.devices`."""

    name = "dist.mesh"
    sym_name = prop_def(SymbolNameConstraint())
    axes = prop_def(AxesAttr)
    traits = traits_def(SymbolOpInterface())

    def __init__(self, name: str, axes: Mapping[str, int]):
        super().__init__(properties={"sym_name": StringAttr(name), "axes": AxesAttr(tuple(axes.items()))})

    @property
    def axis_sizes(self) -> dict[str, int]:
        return dict(self.axes.data)

    @classmethod
    def parse(cls, parser: Parser) -> MeshOp:
        name = parser.parse_symbol_name()
        parser.parse_punctuation("=")
        axes = AxesAttr(AxesAttr.parse_parameter(parser))
        attributes = parser.parse_optional_attr_dict()
        return cls.create(properties={"sym_name": name, "axes": axes}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" = ")
        self.axes.print_parameter(printer)
        printer.print_op_attributes(self.attributes)
