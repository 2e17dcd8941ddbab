"""Writes `primitives.json`: the names of all primitives of the installed JAX that compute on arrays.

python -m distir.dialects.jax.generate_primitives
"""

import json
from importlib import metadata
from pathlib import Path

CALLS = frozenset("jit pjit closed_call core_call call custom_jvp_call custom_vjp_call remat2 checkpoint scan".split())
"""Primitives that the frontend opens: they never appear in a program."""


def main() -> None:
    from jax.extend import core
    from jax.extend.core import primitives

    names = {p.name for p in vars(primitives).values() if isinstance(p, core.Primitive)} - CALLS
    table = {"jax": metadata.version("jax"), "primitives": sorted(names)}
    path = Path(__file__).parent / "primitives.json"
    path.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{len(names)} primitives of jax {table['jax']} in {path.name}")


if __name__ == "__main__":
    main()
