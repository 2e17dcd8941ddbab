"""The `jax` dialect: one operation class per JAX primitive, made from the list of their names.

`jax.dot_general` is the primitive `dot_general`. Operands and results are the primitive's, all tensors; its parameters are
properties, by one encoding for all primitives (`distir.dialects.jax.parameters`); jaxprs among them (what a scatter
combines with, the body of a `while`) are regions, named in order by the property `regions`. Importing this imports neither
JAX nor numpy: what a primitive computes is asked of JAX where a program runs (`distir.interpreters.jax.primitives`).
"""

from xdsl.ir import Dialect

from distir.dialects.jax.operations import PRIMITIVES, Constant, JaxOperation, Yield

__all__ = ["PRIMITIVES", "Constant", "Jax", "JaxOperation", "Yield"]

Jax = Dialect("jax", [*PRIMITIVES.values(), Constant, Yield])
