"""How primitives of JAX are understood: types, arrays, and work."""
