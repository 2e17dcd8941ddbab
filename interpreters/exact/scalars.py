"""An exact scalar: an element of the field of integers modulo 2^61 - 1, for numpy object arrays. In goes a number;
out comes a scalar.

numpy code runs on such arrays unchanged: operators call `+`, `*` and the like, `np.exp` calls the method `exp`,
`np.max` compares. A ring identity that does not hold is accepted with probability degree / 2^61 (Schwartz, Zippel),
so a probe needs no tolerance and no second draw. All other operations are uninterpreted: a transcendental function
is a keyed hash of its argument, and the order is that of a keyed hash, total but blind to addition. That makes the
probe conservative: `relu(a) + relu(b)` and `relu(a + b)` differ. A cast to a machine number raises, so code that
needs one is seen to need it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

PRIME = (1 << 61) - 1

_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh "
    "arctanh rint fabs deg2rad rad2deg"
).split()
"""Methods that numpy looks up by name when a ufunc meets an object array."""
_OTHERS = "abs floor ceil trunc pow mod floordiv arctan2 hypot inf -inf nan".split()
_CODES = {name: code for code, name in enumerate((*_FUNCTIONS, *_OTHERS))}
ORDER_FACTORS = (0x8F18C17AF0DD0921, 0x94D049BB133111EB)
"""Of a mixing of 64 bits (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), the first one drawn until
1, 2, 3, 5, 6 and 1/2 came above zero and their negatives below, a sixteenth of all numbers away from it at least: code that keeps
numbers between two such bounds does not become constant."""
LARGEST_POWER = 16
"""Larger ones are uninterpreted."""
_WORD = 2**64 - 1


_beyond_ring = 0


def beyond_ring() -> int:
    """How many operations on scalars, since the start of the process, were none of +, - and *."""
    return _beyond_ring


def count_beyond_ring() -> None:
    """One more of those."""
    global _beyond_ring
    _beyond_ring += 1


def uninterpreted(function: str, *arguments: int) -> int:
    """A field element that depends on nothing but the function and its arguments (the same in every process)."""
    count_beyond_ring()
    return hash((_CODES[function], 0x9E3779B9, *arguments)) % PRIME


def order(value: int) -> int:
    """The place of a field element in the total order, from -2^63; 0 is in the middle."""
    count_beyond_ring()
    for factor in ORDER_FACTORS:
        value = value * factor & _WORD
        value ^= value >> 32
    return value - 2**64 if value >> 63 else value


def field_element(number: float | int | Fraction) -> int:
    """The number as a field element, exactly; infinities and nan are opaque constants."""
    if isinstance(number, float) and not math.isfinite(number):
        return uninterpreted("nan" if math.isnan(number) else "inf" if number > 0 else "-inf")
    return _ratio(number)


@lru_cache(1024)
def _ratio(number: float | int | Fraction) -> int:
    exact = Fraction(number)
    return exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME


@lru_cache(1024)
def _inverse(value: int) -> int:
    if value == 0:
        raise ZeroDivisionError("division of an exact scalar by zero")
    return pow(value, -1, PRIME)


class Scalar:
    """One exact number; see the module's description."""

    __slots__ = ("value",)

    def __init__(self, value: int):
        self.value = value

    @staticmethod
    def of(number: Any) -> Scalar:
        """Raises TypeError for what is not a real number."""
        kind = type(number)
        if kind is Scalar:
            return number
        if kind is int:
            return Scalar(number % PRIME)
        if kind is float or kind is bool or kind is Fraction:
            return Scalar(field_element(number))
        item = getattr(number, "item", None)  # a numpy scalar
        if item is None or getattr(number, "shape", ()) != ():
            raise TypeError(f"expected a number, got {kind.__name__}")
        return Scalar.of(item())

    def __repr__(self) -> str:
        return f"Scalar({self.value})"

    def __hash__(self) -> int:
        count_beyond_ring()
        return hash(self.value)

    # --- the field ---

    def __add__(self, other: Any) -> Scalar:
        other = other if type(other) is Scalar else Scalar.of(other)
        return Scalar((self.value + other.value) % PRIME)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Scalar:
        other = other if type(other) is Scalar else Scalar.of(other)
        return Scalar((self.value - other.value) % PRIME)

    def __rsub__(self, other: Any) -> Scalar:
        return Scalar.of(other) - self

    def __mul__(self, other: Any) -> Scalar:
        other = other if type(other) is Scalar else Scalar.of(other)
        return Scalar(self.value * other.value % PRIME)

    __rmul__ = __mul__

    def __neg__(self) -> Scalar:
        return Scalar(-self.value % PRIME)

    def __pos__(self) -> Scalar:
        return self

    def __truediv__(self, other: Any) -> Scalar:
        count_beyond_ring()
        return Scalar(self.value * _inverse(Scalar.of(other).value) % PRIME)

    def __rtruediv__(self, other: Any) -> Scalar:
        return Scalar.of(other) / self

    def __pow__(self, exponent: Any) -> Scalar:
        if not isinstance(exponent, Scalar) and exponent == int(exponent) and abs(exponent) <= LARGEST_POWER:
            if self.value == 0 and exponent < 0:
                raise ZeroDivisionError("negative power of zero")
            if exponent < 0:
                count_beyond_ring()
            return Scalar(pow(self.value, int(exponent), PRIME))
        return Scalar(uninterpreted("pow", self.value, Scalar.of(exponent).value))

    def __rpow__(self, base: Any) -> Scalar:
        return Scalar(uninterpreted("pow", Scalar.of(base).value, self.value))

    # --- the order ---

    def __eq__(self, other: object) -> bool:
        count_beyond_ring()
        return self.value == Scalar.of(other).value

    def __lt__(self, other: Any) -> bool:
        return order(self.value) < order(Scalar.of(other).value)

    def __gt__(self, other: Any) -> bool:
        return order(self.value) > order(Scalar.of(other).value)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    # --- uninterpreted functions ---

    def __abs__(self) -> Scalar:
        return Scalar(uninterpreted("abs", self.value))

    def __floor__(self) -> Scalar:
        return Scalar(uninterpreted("floor", self.value))

    def __ceil__(self) -> Scalar:
        return Scalar(uninterpreted("ceil", self.value))

    def __trunc__(self) -> Scalar:
        return Scalar(uninterpreted("trunc", self.value))

    def __mod__(self, other: Any) -> Scalar:
        return Scalar(uninterpreted("mod", self.value, Scalar.of(other).value))

    def __rmod__(self, other: Any) -> Scalar:
        return Scalar.of(other) % self

    def __floordiv__(self, other: Any) -> Scalar:
        return Scalar(uninterpreted("floordiv", self.value, Scalar.of(other).value))

    def __rfloordiv__(self, other: Any) -> Scalar:
        return Scalar.of(other) // self

    def arctan2(self, other: Any) -> Scalar:
        return Scalar(uninterpreted("arctan2", self.value, Scalar.of(other).value))

    def hypot(self, other: Any) -> Scalar:
        return Scalar(uninterpreted("hypot", self.value, Scalar.of(other).value))

    def conjugate(self) -> Scalar:
        return self

    # --- no casts ---

    def __float__(self) -> float:
        raise TypeError("an exact scalar is not a float")

    def __int__(self) -> int:
        raise TypeError("an exact scalar is not an integer")

    def __bool__(self) -> bool:
        raise TypeError("an exact scalar is not a truth value")


def _method(name: str) -> Any:
    def function(self: Scalar) -> Scalar:
        return Scalar(uninterpreted(name, self.value))

    return function


for _name in _FUNCTIONS:
    setattr(Scalar, _name, _method(_name))
