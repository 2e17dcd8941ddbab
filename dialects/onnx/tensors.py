"""`#onnx.tensor`, the value of a constant. In goes a numpy array or a text; out comes the attribute, and back, with
every bit.

MLIR's `dense<...>` literal is kept as the text, but printed and parsed here: xDSL 0.74 prints non-finite and many
large floats in hexadecimal and reads them back as integers. A tensor prints as a list when each decimal reads back to
the same bits, and otherwise as MLIR's string of raw bytes:

    #onnx.tensor<dense<[1, 2]> : tensor<2xi64>>
    #onnx.tensor<dense<"0x000080FF"> : tensor<f32>>

In memory the data is what `numpy.ndarray.tobytes` gives in little-endian order (one byte per sub-byte element), or a
single element for a splat. numpy is imported only by the two conversions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    ComplexType,
    DenseIntOrFPElementsAttr,
    IntegerType,
    NoneAttr,
    PackableType,
    Signedness,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from distir.dialects.onnx.types import ELEMENT_OF_NUMPY_NAME, ELEMENT_OF_TYPE, StringType

if TYPE_CHECKING:
    import numpy as np

LARGEST_LIST = 64
"""More elements than this print as bytes."""

Scalar: TypeAlias = int | float | str
Nested: TypeAlias = "Scalar | list[Nested]"


def without_encoding(type: TensorType[Attribute]) -> TensorType[Attribute]:
    """The type without its placement."""
    if isinstance(type.encoding, NoneAttr):
        return type
    return TensorType(type.element_type, type.get_shape())


@irdl_attr_definition
class TensorAttr(ParametrizedAttribute):
    """A constant tensor: numbers as bytes, strings as an array."""

    name = "onnx.tensor"
    type: TensorType[Attribute]
    data: BytesAttr | ArrayAttr[StringAttr]

    def verify(self) -> None:
        shape = self.type.get_shape()
        if any(dim < 0 for dim in shape):
            raise VerifyException(f"a constant needs a static shape, got {self.type}")
        element = ELEMENT_OF_TYPE.get(self.type.element_type)
        if element is None:
            raise VerifyException(f"no ONNX element type {self.type.element_type}")
        if isinstance(self.data, BytesAttr) == isinstance(self.type.element_type, StringType):
            raise VerifyException(f"wrong kind of data for {self.type}")
        expected = prod(shape) * (element.itemsize or 1)
        if len(self.data.data) not in (expected, (element.itemsize or 1) if expected else 0):
            raise VerifyException(
                f"{self.type} needs {expected} {'bytes' if element.itemsize else 'strings'}, got {len(self.data.data)}"
            )

    @property
    def is_splat(self) -> bool:
        """Whether one element stands for several."""
        itemsize = ELEMENT_OF_TYPE[self.type.element_type].itemsize or 1
        return len(self.data.data) == itemsize and prod(self.type.get_shape()) != 1

    @classmethod
    def from_bytes(cls, type: TensorType[Attribute], data: bytes) -> TensorAttr:
        """The constant with these bytes, one element or all of them; equal elements are stored once."""
        element = ELEMENT_OF_TYPE.get(type.element_type)
        count = prod(type.get_shape())
        if element is not None and count > 1 and len(data) == count * element.itemsize:
            first = data[: element.itemsize]
            if data == first * count:
                data = first
        return cls(type, BytesAttr(data))

    @classmethod
    def from_strings(cls, type: TensorType[Attribute], strings: Sequence[str]) -> TensorAttr:
        """The constant with these strings, one or all of them; equal elements are stored once."""
        if len(strings) == prod(type.get_shape()) and len(set(strings)) == 1:
            strings = strings[:1]
        return cls(type, ArrayAttr([StringAttr(text) for text in strings]))

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> TensorAttr:
        """The constant with this value (object arrays hold strings)."""
        if array.dtype.kind in "OUST":
            return cls.from_strings(
                TensorType(StringType(), array.shape), [_text(item) for item in array.reshape(-1).tolist()]
            )
        element = ELEMENT_OF_NUMPY_NAME.get(array.dtype.name)
        if element is None:
            raise VerifyException(f"no ONNX element type for numpy's {array.dtype}")
        if array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        return cls.from_bytes(TensorType(element.type, array.shape), array.tobytes())

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The value as a read-only array (a broadcast view for a splat)."""
        import numpy as np

        shape = self.type.get_shape()
        if isinstance(self.data, ArrayAttr):
            flat = np.array([text.data for text in self.data], dtype=object)
        else:
            flat = np.frombuffer(self.data.data, dtype=numpy_dtype(self.type.element_type))
        array = np.broadcast_to(flat, shape) if self.is_splat else flat.reshape(shape)
        array.flags.writeable = False
        return array

    @classmethod
    def of(cls, attribute: Attribute) -> TensorAttr:
        """This attribute, or a builtin `dense` as other tools write it, as a TensorAttr."""
        if isinstance(attribute, TensorAttr):
            return attribute
        if isinstance(attribute, DenseIntOrFPElementsAttr):
            import numpy as np

            dense = cast(DenseIntOrFPElementsAttr[Any], attribute)
            values = np.array(dense.get_values(), dtype=numpy_dtype(dense.get_element_type()))
            return cls.from_numpy(values.reshape(dense.get_shape()))
        raise VerifyException(f"expected a constant tensor, got {attribute}")

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_literal(printer, self)
            printer.print_string(" : ")
            printer.print_attribute(self.type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            literal = Literal(parser)
            parser.parse_punctuation(":")
            attribute = literal.typed(parser.parse_type())
        return (attribute.type, attribute.data)


def numpy_dtype(element_type: Attribute) -> np.dtype[Any]:
    """The numpy type (ml_dtypes for the small ones) that holds an element type."""
    import ml_dtypes
    import numpy as np

    name = ELEMENT_OF_TYPE[element_type].numpy_name
    dtype: Any = getattr(ml_dtypes, name, None)
    return np.dtype(name if dtype is None or hasattr(np, name) else dtype)


def _text(item: object) -> str:
    return item.decode() if isinstance(item, bytes) else str(item)


# Printing: nested lists of exact decimals, or raw bytes.


def print_literal(printer: Printer, attribute: TensorAttr) -> None:
    """Print `dense<...>` without the type."""
    printer.print_string("dense<")
    shape = attribute.type.get_shape()
    texts = _exact_texts(attribute)
    if texts is None:
        printer.print_string(f'"0x{_mlir_bytes(attribute).hex().upper()}"')
    elif prod(shape):
        _print_nested(printer, iter(texts), () if attribute.is_splat else shape)
    printer.print_string(">")


def _print_nested(printer: Printer, texts: Any, shape: tuple[int, ...]) -> None:
    if not shape:
        printer.print_string(next(texts))
        return
    printer.print_string("[")
    for i in range(shape[0]):
        if i:
            printer.print_string(", ")
        _print_nested(printer, texts, shape[1:])
    printer.print_string("]")


def _exact_texts(attribute: TensorAttr) -> list[str] | None:
    """One text per stored element that reads back to the same bits; None when there is none, or too many."""
    element_type = attribute.type.element_type
    if isinstance(attribute.data, ArrayAttr):
        return [_quoted(text.data) for text in attribute.data]
    data, size = attribute.data.data, ELEMENT_OF_TYPE[element_type].itemsize
    if len(data) > LARGEST_LIST * size or isinstance(element_type, ComplexType):
        return None
    elements = [data[i : i + size] for i in range(0, len(data), size)]
    if isinstance(element_type, IntegerType):
        values = [int.from_bytes(raw, "little") for raw in elements]
        width = element_type.width.data
        if width == 1:
            return ["true" if value else "false" for value in values]
        if element_type.signedness.data is not Signedness.UNSIGNED:
            values = [value - (1 << width) if value >> (width - 1) else value for value in values]
        return [str(value) for value in values]
    float_type = cast(PackableType[float], element_type)
    texts = [_exact_decimal(float_type, raw) for raw in elements]
    return None if None in texts else cast(list[str], texts)


def _exact_decimal(float_type: PackableType[float], raw: bytes) -> str | None:
    (value,) = float_type.unpack(raw, 1)
    if value != value or value in (float("inf"), float("-inf")):
        return None
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        try:
            if float_type.pack([float(text)]) == raw:
                break
        except OverflowError:
            continue
    else:
        return None
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{exponent}{power}"


def _quoted(text: str) -> str:
    """An MLIR string literal: everything but printable ASCII is escaped as UTF-8 bytes."""
    return (
        '"'
        + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode())
        + '"'
    )


def _mlir_bytes(attribute: TensorAttr) -> bytes:
    """The raw bytes as MLIR lays them out: booleans are packed eight to a byte."""
    data = cast(BytesAttr, attribute.data).data
    if attribute.type.element_type != IntegerType(1):
        return data
    bits = int.from_bytes(bytes(48 + byte for byte in reversed(data)), "big").to_bytes(len(data), "big")
    return int(bits.decode(), 2).to_bytes((len(data) + 7) // 8, "little")


class Literal:
    """A parsed `dense<...>` whose type comes later in the text."""

    def __init__(self, parser: AttrParser) -> None:
        self.parser = parser
        self.start = parser.pos
        self.bit_patterns: set[int] = set()  # positions in `flat` that were written in hexadecimal
        self.flat: list[Scalar] = []
        parser.parse_keyword("dense")
        parser.parse_punctuation("<")
        self.nested: Nested | None = None
        if parser.parse_optional_punctuation(">") is None:
            self.nested = self._parse_nested()
            parser.parse_punctuation(">")

    def _parse_nested(self) -> Nested:
        parser = self.parser
        if parser.parse_optional_punctuation("[") is None:
            return self._parse_scalar()
        rows: list[Nested] = []
        if parser.parse_optional_punctuation("]") is None:
            rows.append(self._parse_nested())
            while parser.parse_optional_punctuation(","):
                rows.append(self._parse_nested())
            parser.parse_punctuation("]")
        return rows

    def _parse_scalar(self) -> Scalar:
        parser = self.parser
        scalar: Scalar | None = parser.parse_optional_str_literal()
        if scalar is None and (utf8 := parser.parse_optional_bytes_literal()) is not None:
            scalar = utf8.decode()
        if scalar is None:
            if parser.lexer.input.slice(parser.pos, parser.pos + 2) in ("0x", "0X"):
                self.bit_patterns.add(len(self.flat))
            scalar = parser.parse_number(allow_boolean=True)
        self.flat.append(scalar)
        return scalar

    def typed(self, type: Attribute) -> TensorAttr:
        """The constant of this type (its encoding is not part of the value), or a parse error."""
        if not isinstance(type, TensorType):
            self.parser.raise_error(f"expected a tensor type, got {type}", self.start)
        plain = without_encoding(cast(TensorType[Attribute], type))
        if plain.element_type not in ELEMENT_OF_TYPE:
            self.parser.raise_error(f"no ONNX element type {plain.element_type}", self.start)
        try:
            attribute = self._typed(plain)
            attribute.verify()
            return attribute
        except (VerifyException, ValueError, OverflowError, TypeError) as error:
            self.parser.raise_error(f"literal does not fit {plain}: {error}", self.start)

    def _typed(self, type: TensorType[Attribute]) -> TensorAttr:
        if isinstance(type.element_type, StringType):
            return TensorAttr.from_strings(type, [_text(item) for item in self.flat])
        if self.nested is None:
            return TensorAttr(type, BytesAttr(b""))
        if isinstance(self.nested, str):
            return TensorAttr.from_bytes(type, _numpy_bytes(type, bytes.fromhex(self.nested.removeprefix("0x"))))
        if isinstance(self.nested, list) and _shape_of(self.nested) != type.get_shape():
            raise VerifyException(f"it has shape {list(_shape_of(self.nested))}")
        elements = [self._packed(type.element_type, i, item) for i, item in enumerate(self.flat)]
        return TensorAttr.from_bytes(type, b"".join(elements))

    def _packed(self, element_type: Attribute, index: int, item: Scalar) -> bytes:
        if isinstance(item, str):
            raise VerifyException("a string among numbers")
        size = ELEMENT_OF_TYPE[element_type].itemsize
        if isinstance(element_type, IntegerType):
            if isinstance(item, float):
                raise VerifyException(f"{item} is not an integer")
            low, high = element_type.value_range()
            if not low <= item < high:
                raise VerifyException(f"{item} is out of range")
            return (int(item) % (1 << element_type.width.data)).to_bytes(size, "little")
        if index in self.bit_patterns:
            return int(item).to_bytes(size, "little")
        if isinstance(element_type, ComplexType):
            raise VerifyException("complex numbers are written as bytes")
        return cast(PackableType[float], element_type).pack([float(item)])


def _shape_of(nested: Nested) -> tuple[int, ...]:
    if not isinstance(nested, list):
        return ()
    shapes = {_shape_of(row) for row in nested}
    if len(shapes) > 1:
        raise VerifyException("its rows differ in shape")
    return (len(nested), *(shapes.pop() if shapes else ()))


def _numpy_bytes(type: TensorType[Attribute], data: bytes) -> bytes:
    """The reverse of `_mlir_bytes`."""
    count = prod(type.get_shape())
    if type.element_type != IntegerType(1):
        return data
    if len(data) != (count + 7) // 8:
        raise VerifyException(f"{count} booleans are {(count + 7) // 8} bytes, got {len(data)}")
    return bytes((data[i // 8] >> (i % 8)) & 1 for i in range(count))
