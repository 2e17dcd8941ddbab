"""In goes the program of one rank (level 4), out comes its source as Python on torch: a function for each function of the program, a line
for each operation, `del` where a value is used last.

    source = source_of(module, ElementTypes(), "main")
    source.render({0: source})       # the module's text (`module_text`)

Names, paths and strings come from a model, which nobody trusts: names become identifiers, and all other text is written as `repr` or
`ascii` has it. Operations that torch has no name for are kernels: they are called by number, and stay operations (`kernels`).
"""

from __future__ import annotations

import base64
import keyword
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, cast

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, NoneType, TensorType, TupleType
from xdsl.ir import Operation, SSAValue

from distir.backends.torch.convolutions import are_of_one_convolution
from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.late import LateValues, may_be_late
from distir.backends.torch.module_text import Difference, Line, Names, Source, comment, literal
from distir.dialects import rank
from distir.dialects.aten import AtenOperation
from distir.dialects.dist import AccumulateOp, CastOp, ConcatOp, InsertOp, PackOp, ScaleOp, SliceOp, UnpackOp, ZerosOp
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.errors import DistirError
from distir.dialects.grad import LossGradOp, LossOp, MatmulGradOp, ReluGradOp, SgdOp
from distir.dialects.onnx import Constant, NoValue
from distir.interpreters.aten.calls import in_place_form, overload, torch_dtype, written_operands
from distir.interpreters.aten.properties import python_value
from distir.interpreters.entry import Port, arguments_of, results_of
from distir.interpreters.model_names import MODULE, model_name
from distir.interpreters.walk import values_read


def source_of(module: ModuleOp, types: ElementTypes, entry: str = "main") -> Source:
    """The source of all functions of the module; the entry says what the model calls its arguments."""
    writer = _Writer(module, types, entry)
    for op in module.ops:
        if isinstance(op, func.FuncOp):
            writer.function(op)
    return writer.source


def _elements(value: SSAValue) -> Sequence[SSAValue]:
    """What was packed, of a tuple that was packed in sight; else the value."""
    while isinstance(value.owner, rank.WaitOp):
        value = value.owner.input
    return value.owner.operands if isinstance(value.owner, PackOp) else [value]


class _Writer:
    """Builds the source of one module, function by function."""

    def __init__(self, module: ModuleOp, types: ElementTypes, entry: str) -> None:
        self.types, self.entry, self.source = types, entry, Source()
        self.globals = Names()
        self.symbols = self.source.functions
        self.pending: set[SSAValue] = set()
        self.late = LateValues(module)
        self._dying: Sequence[SSAValue] = ()
        self._known: dict[Any, str] = {}
        for op in module.ops:
            if isinstance(op, func.FuncOp):
                symbol = op.sym_name.data
                self.symbols[symbol] = self.globals.of(re.sub(r"\.on_[0-9_]+$", "", symbol), "function")

    def function(self, op: func.FuncOp) -> None:
        symbol = op.sym_name.data
        body, block = self.source.body, op.body.block
        self.pending = {block.args[i] for i in self.late.arguments(symbol)}
        self.values: dict[SSAValue, str] = {}
        self._locals, self._site, self._path = Names(self.symbols.values()), "", ""
        operations = list(block.ops)
        read = [values_read(each) for each in operations]
        last = {value: i for i, values in enumerate(read) for value in values}
        for i, argument in enumerate(block.args):
            self._name(argument, f"arg{i}")
        body += [Line(""), Line(""), Line(f"def {self.symbols[symbol]}(given):")]
        if self.symbols[symbol] != symbol:
            body.append(Line(f"    # @{self._difference('', comment(symbol))}"))
        if block.args:
            if symbol == self.entry:
                ports = zip(arguments_of(op), block.args, strict=True)
                listed = "".join(f"\n        {self.values[a]},  # {self._port(port)}" for port, a in ports)
                body.append(Line(f"    [{listed}\n    ] = given"))
            else:
                body.append(Line(f"    [{self._list(block.args)}] = given"))
            body.append(Line("    given.clear()"))
            self._forget([a for a in block.args if a not in last])
        path = ""
        joined = {each.next_op for each in operations if self._is_joined(each)}
        for i, each in enumerate(operations):
            if each in joined:
                continue
            if (named := model_name(each)) != path and named and MODULE in each.attributes:
                path = named
                body.append(Line(f"    # {comment(path)}"))
            self._site, self._path = f"{each.name} in @{symbol}", model_name(each)
            end = i + 1 if each.next_op in joined else i
            dying = [v for v in dict.fromkeys(chain(*read[i : end + 1])) if last[v] <= end]
            if isinstance(each, func.ReturnOp):
                if symbol not in self.late.called:
                    self._wait(each.operands)
                named = [self._port(port) for port in results_of(op)] if symbol == self.entry else []
                lines = [f"\n        {self.values[v]},  # {p}" for v, p in zip(each.operands, named, strict=False)]
                self._line(f"return [{''.join(lines)}\n    ]" if named else f"return [{self._list(each.operands)}]")
                break
            if end > i:
                self._gradients(each, operations[end], dying)
            else:
                self._operation(each, read[i], dying)

    def _port(self, port: Port) -> str:
        """What the model calls an argument or result, and which part of it this rank has."""
        part = (
            "" if port.part is None else self._difference("", f" {comment(str(port.part).removeprefix('#dist.part'))}")
        )
        return f"{port.role or 'input'} {comment(port.name)}{part}"

    # --- lines ---

    def _line(self, text: str) -> None:
        self.source.body.append(Line(f"    {text}", self._site, self._path))

    def _forget(self, values: Sequence[SSAValue]) -> None:
        if values:
            listed = self._list(values)
            self.source.body.append(Line(f"    del ({listed})" if "\n" in listed else f"    del {listed}"))

    def _name(self, value: SSAValue, fallback: str) -> str:
        self.values[value] = self._locals.of(value.name_hint or "", fallback)
        return self.values[value]

    def _list(self, values: Sequence[SSAValue]) -> str:
        """Names, in brackets; on several lines where there are many."""
        lines = [""]
        for name in (self.values[v] for v in values):
            if len(lines[-1]) + len(name) > 100:
                lines.append("        ")
            lines[-1] += f"{name}, "
        return "\n".join(line.rstrip() for line in lines).rstrip(",")

    def _difference(self, kind: str, text: str, value: str | None = None) -> str:
        """A literal that may not be the same on other ranks."""
        self.source.differences.append(Difference(kind, text, text if value is None else value))
        return f"\x00{len(self.source.differences) - 1}\x00"

    def _global(self, key: Any, wanted: str, text: str) -> str:
        """A name of the module for what this text makes, once for equal keys."""
        if key not in self._known:
            self._known[key] = self.globals.own(re.sub(r"\W", "_", wanted))
            self.source.head.append(f"{self._known[key]} = {text}")
        return self._known[key]

    def _dtype(self, type_: Any) -> str:
        return str(self.types.of(type_.element_type))

    def _wait(self, values: Sequence[SSAValue]) -> None:
        """Values of other streams are there from here on."""
        for value in dict.fromkeys(v for v in values if v in self.pending):
            self.pending.discard(value)
            self._line(f"{self.values[value]} = wait({self.values[value]})")

    # --- operations ---

    def _operation(self, op: Operation, read: Sequence[SSAValue], dying: list[SSAValue]) -> None:
        if isinstance(op, rank.WaitOp):
            self._move(op, dying)
            return
        is_late = any(v in self.pending for v in read) and may_be_late(op) and not self.types.in_float64
        if not is_late:
            self._wait([v for v in read if not (isinstance(op, func.CallOp) and self.late.is_given(v))])
        if isinstance(op, func.CallOp):
            self._call(op, dying)
            dying = []
        else:
            self._dying = [] if is_late else dying
            text = self._text(op, read)  # before results are named: they may take the names of no operand
            if is_late:
                self.pending.update(op.results)
                text = self._late_text(op, read, text)
            for result in op.results:
                self._name(result, op.name.rpartition(".")[2])
            self._assign(op, text)
        self._forget([*dying, *(r for r in op.results if r.first_use is None)])

    def _is_joined(self, op: Operation) -> bool:
        """Whether torch computes it together with the next operation."""
        return not self.types.in_float64 and are_of_one_convolution(op, op.next_op)

    def _gradients(self, of_input: Operation, of_weight: Operation, dying: Sequence[SSAValue]) -> None:
        """Both gradients of a convolution, by one operator."""
        self._wait(of_weight.operands)
        text = self._aten(cast(AtenOperation, of_weight), {"output_mask": "[True, True, False]"})
        results = [of_input.results[0], *of_weight.results[1:]]
        for result in results:
            self._name(result, "convolution_backward")
        self._line(f"[{self._list(results)}] = {text}")
        self._forget([*dying, *(r for r in results if r.first_use is None)])

    def _late_text(self, op: Operation, read: Sequence[SSAValue], text: str) -> str:
        """Of an operation on what is on its way: computed where its result is waited for."""
        if isinstance(op, UnpackOp):
            return f"elements({text}, {len(op.results)})"
        names = ", ".join(dict.fromkeys(self.values[v] for v in read))
        return f"after(lambda {names}: {text}, {names})"

    def _assign(self, op: Operation, text: str) -> None:
        if not op.results:
            self._line(text)
            return
        names = self._list(op.results)
        lists = isinstance(op, AtenOperation) and any(r.endswith("[]") for r in op.schema.results)
        several = len(op.results) > 1 or lists or isinstance(op, UnpackOp) or op in self.source.kernels[-1:]
        note = f"  # {self._level_3(op)}" if isinstance(op, rank.RankOp) else ""
        self._line(f"{f'[{names}]' if several else names} = {text}{note}")
        if isinstance(op, AtenOperation) and self.types.in_float64:
            for result in op.results:
                dtype = self.types.of(result.type.element_type) if isinstance(result.type, TensorType) else None
                if dtype is not None and (dtype.is_floating_point or dtype.is_complex):
                    self._line(f"{self.values[result]} = {self.values[result]}.to({dtype})")

    def _call(self, op: func.CallOp, dying: Sequence[SSAValue]) -> None:
        """A call hands its arguments over, so that the callee frees them at their last use."""
        callee = self.symbols.get(op.callee.string_value())
        if callee is None:
            raise DistirError(f"no function @{op.callee.string_value()} in the module")
        given = f"[{self._list(op.operands)}]"
        if dying:
            self._line(f"given = {given}")
            self._forget(dying)
            given = "given"
        for result in op.results:
            self._name(result, callee)
        self.pending.update(op.results[i] for i in self.late.results(op.callee.string_value()))
        self._line(f"[{self._list(op.results)}] = {callee}({given})" if op.results else f"{callee}({given})")

    def _move(self, op: rank.WaitOp, dying: Sequence[SSAValue]) -> None:
        """To a stream: the same value. Back from one: the program waits for it."""
        self._wait([op.input])
        self._line(f"{self._name(op.output, 'moved')} = {self.values[op.input]}")
        self._forget([*dying, *([] if op.output.first_use else [op.output])])

    def _text(self, op: Operation, read: Sequence[SSAValue]) -> str:
        """The expression that computes the results."""
        x = [self.values[v] for v in read]
        match op:
            case AtenOperation():
                return self._aten(op)
            case rank.RankOp():
                return self._communication(op, x)
            case SliceOp():
                text = ", ".join(f"{a}:{b}" for a, b in op.ranges) or "()"
                value = "".join(f"slice({a}, {b}), " for a, b in op.ranges)
                return f"{x[0]}[{self._difference('part', text, f'({value})')}].clone()"
            case InsertOp():
                dim, first = op.dim.value.data, op.start.value.data
                extent = cast(TensorType[Any], op.part.type).get_shape()[dim]
                start, stop = (self._difference(k, str(v)) for k, v in (("start", first), ("stop", first + extent)))
                return f"{x[0]}.slice_scatter({x[1]}, {dim}, {start}, {stop})"
            case ConcatOp():
                return f"torch.cat([{', '.join(x)}], {op.dim.value.data})"
            case AccumulateOp():
                return f"accumulate({op.reduction.data.value!r}, {', '.join(x)})"
            case LocalIndexOp():
                ignored = "" if op.ignored is None else f", {op.ignored.value.data}"
                return f"local_index({x[0]}, {self._range(op)}{ignored})"
            case InsideOp():
                otherwise = "".join(f", {name}" for name in x[2:])
                return f"inside({x[0]}, {x[1]}, {self._range(op)}, {list(op.mask_shape)}{otherwise})"
            case ZerosOp():
                type_ = cast(TensorType[Any], op.output.type)
                return f"torch.zeros({list(type_.get_shape())}, dtype={self._dtype(type_)}, device=DEVICE)"
            case ScaleOp():
                return f"scale({x[0]}, {op.factor.data[0]}, {op.factor.data[1]})"
            case CastOp():
                return f"{x[0]}.to({self._dtype(cast(TensorType[Any], op.output.type))})"
            case PackOp():
                return f"({self._list(read)},)" if x else "()"
            case UnpackOp():
                return x[0]
            case NoValue():
                return "None"
            case Constant() if self.types.holds(op.results[0].type):
                return self._constant(op)
            case MatmulGradOp():
                return f"matmul_grad({', '.join(x)})"
            case ReluGradOp():
                return f"torch.where({x[0]} > 0, {x[1]}, 0)"
            case LossOp():
                return f"({x[0]} - {x[1]}).square() / {x[2]}"
            case LossGradOp():
                return f"2 * ({x[0]} - {x[1]}) / {x[2]}"
            case SgdOp():
                return f"torch.sub({x[0]}, {x[1]}, alpha={literal(op.learning_rate.value.data)})"
            case _:
                return self._kernel(op, x)

    def _range(self, op: LocalIndexOp | InsideOp) -> str:
        start, stop, extent = op.range
        return f"{self._difference('start', str(start))}, {self._difference('stop', str(stop))}, {extent}"

    def _kernel(self, op: Operation, x: Sequence[str]) -> str:
        self.source.kernels.append(op)
        number = len(self.source.kernels) - 1
        name = self._global(("kernel", number), f"kernel_{op.name}", f"kernel({number})")
        return f"{name}([{', '.join(x)}])"

    def _constant(self, op: Constant) -> str:
        type_ = cast(TensorType[Any], op.results[0].type)
        array, dtype = op.value.to_numpy(), self._dtype(type_)
        shape = list(array.shape)
        if array.size <= 16 and array.dtype.kind in "biuf":
            return self._global(
                (array.tobytes(), str(shape), dtype),
                f"constant_{len(self._known)}",
                f"torch.tensor({literal(array.tolist())}, dtype={dtype}, device=DEVICE).reshape({shape})",
            )
        packed = base64.b64encode(zlib.compress(array.tobytes())).decode()
        stored = str(ElementTypes().of(type_.element_type))
        cast_ = "" if stored == dtype else f".to({dtype})"
        return self._global(
            (packed, str(shape), dtype),
            f"constant_{len(self._known)}",
            f"constant({packed!r}, {shape}, {stored}){cast_}",
        )

    def _aten(self, op: AtenOperation, instead: Mapping[str, str] = {}) -> str:
        """The call of its operator; `instead` has arguments as text."""
        schema, words, positional = op.schema, list[str](), True
        overload(schema)  # raises where this torch does not have it
        values = {argument.name: value for argument, value in op.values()}
        named: dict[str, str] = {}
        for argument in schema.arguments:
            value = values.get(argument.name)
            given = isinstance(value, SSAValue) or (
                value is not None and not (isinstance(value, list) and not value and argument.optional)
            )
            if argument.name in instead:
                text = instead[argument.name]
            elif isinstance(value, list):
                text = f"[{', '.join('None' if v is None else self.values[v] for v in value)}]"
            elif isinstance(value, SSAValue):
                text = self.values[value] + (".clone()" if argument.name in written_operands(schema) else "")
            else:
                text = (
                    "None"
                    if value is None
                    else literal(python_value(value, lambda type_: self.types.adapted(torch_dtype(type_))))
                )
            if not given and argument.name in values and argument.default is None and not argument.is_placement:
                given = True
            if not given:
                positional = False
            elif positional and not argument.keyword_only:
                words.append(text)
            else:
                named[argument.name] = text
        if any(keyword.iskeyword(name) for name in named):
            words.append(f"**{{{', '.join(f'{name!r}: {text}' for name, text in named.items())}}}")
        else:
            words += [f"{name}={text}" for name, text in named.items()]
        operator = f"aten.{schema.packet}.{schema.overload}"
        wanted = f"aten_{schema.packet}" + ("" if schema.overload == "default" else f"_{schema.overload}")
        made = f"any_layout({operator})" if op.operands else f"here({operator})"
        if self._may_reuse(op):
            wanted, in_place = f"{wanted}_reusing", f"aten.{schema.packet}_.{schema.overload}"
            operator, made = in_place, f"reusing({operator}, {in_place})"
        call = f"{self._global(operator, wanted, made)}({', '.join(words)})"
        if len(schema.results) > 1 and any(r.endswith("[]") for r in schema.results):
            return f"flat({call})"
        return call

    def _may_reuse(self, op: AtenOperation) -> bool:
        """Whether the result may take the memory of the first operand: its last use, of the result's type, and the operator has a form that writes there."""
        return in_place_form(op) is not None and op.operands[0] in self._dying

    # --- communication ---

    def _communication(self, op: rank.RankOp, x: Sequence[str]) -> str:
        match op:
            case rank.SendOp():
                name = "send_beside" if rank.STREAM in op.attributes else "send"
                return f"{name}({x[0]}, {self._difference('peer', str(op.peer.value.data))})"
            case rank.RecvOp():
                name = "receive"
                if rank.STREAM in op.attributes:
                    name = "receive_beside"
                    self.pending.add(op.output)
                return f"{name}({self._difference('peer', str(op.peer.value.data))}, {self._shape(op.output)})"
            case rank.GroupOp():
                beside = rank.STREAM in op.attributes and op.results
                name = self._collective(op)
                if beside:
                    self.pending.add(op.results[0])
                return f"{name}{'.start' if beside else ''}({', '.join(x)})"
            case _:
                raise DistirError(f"{op.name} does not run on the torch backend")

    def _collective(self, op: rank.GroupOp) -> str:
        """The object that the collective is, made once: one for allreduces of the same ranks, others for each, since they know their members' extents."""
        key = (op.name, op.reduction, *op.ranks) if isinstance(op, rank.AllReduceOp) else op
        if key in self._known:
            return self._known[key]
        group = self._difference("group", str(list(op.ranks)))

        def root() -> str:
            return self._difference("root", str(op.root.value.data)) if isinstance(op, rank.RootedOp) else ""

        def reduction(op: rank.AllReduceOp | rank.ReduceScatterOp | rank.ReduceOp) -> str:
            return repr(op.reduction.data.value)

        def extent(dim: int) -> str:
            type_ = op.results[0].type
            tensors = type_.types.data if isinstance(type_, TupleType) else [type_]
            extents = [cast(TensorType[Any], tensor).get_shape()[dim] for tensor in tensors]
            return self._difference("extent", str(extents if isinstance(type_, TupleType) else extents[0]))

        received = "None, None"
        if isinstance(op, rank.RootedOp) and op.output is not None:
            received = self._shape(op.output)
        match op:
            case rank.AllReduceOp():
                made = f"AllReduce({reduction(op)}, {group})"
            case rank.AllGatherOp():
                made = f"AllGather({op.dim.value.data}, {group})"
            case rank.ReduceScatterOp():
                made = f"ReduceScatter({reduction(op)}, {op.dim.value.data}, {extent(op.dim.value.data)}, {group})"
            case rank.AllToAllOp():
                split = op.split.value.data
                made = f"AllToAll({split}, {op.concat.value.data}, {extent(split)}, {group})"
            case rank.ExchangeOp():
                dim, first = op.dim.value.data, self._difference("first", str(op.start.value.data))
                made = f"Exchange({dim}, {first}, {extent(dim)}, {group})"
            case rank.BroadcastOp():
                made = f"Broadcast({root()}, {group}, {received})"
            case rank.ScatterOp():
                receivers = self._difference("receivers", str(list(map(int, op.receivers.get_values()))))
                made = f"Scatter({op.dim.value.data}, {root()}, {receivers}, {group}, {received})"
            case rank.GatherOp():
                contributors = self._difference("contributors", str(list(map(int, op.contributors.get_values()))))
                made = f"Gather({op.dim.value.data}, {root()}, {contributors}, {group}, {received})"
            case rank.ReduceOp():
                contributors = self._difference("contributors", str(list(map(int, op.contributors.get_values()))))
                made = f"Reduce({reduction(op)}, {root()}, {contributors}, {group}, {received})"
            case _:
                raise DistirError(f"{op.name} does not run on the torch backend")
        return self._global(key, op.name.rpartition(".")[2], made)

    def _shape(self, value: SSAValue) -> str:
        type_ = cast(TensorType[Any], value.type)
        return f"{list(type_.get_shape())}, {self._dtype(type_)}"

    def _level_3(self, op: Operation) -> str:
        """The operation of the program of all devices that this rank's part of the communication is of."""
        kind = op.name.rpartition(".")[2]
        names = comment(" ".join(f"%{v.name_hint}" for each in op.operands for v in _elements(each) if v.name_hint))
        if isinstance(op, rank.SendOp | rank.RecvOp):
            way = "to" if isinstance(op, rank.SendOp) else "from"
            return f"dist.send {names} {way} device {self._difference('', str(op.peer.value.data))}"
        stream = op.attributes.get(rank.STREAM)
        beside = f" on stream {comment(str(stream))}" if stream is not None else ""
        over = ""
        if isinstance(op, rank.GroupOp):
            over = f" over devices {self._difference('', str(list(op.ranks)))}"
        types = ", ".join(
            comment(str(v.type)) for v in (*op.operands, *op.results)[:1] if not isinstance(v.type, NoneType)
        )
        return f"dist.{kind} {names}{over}{beside} : {types}"
