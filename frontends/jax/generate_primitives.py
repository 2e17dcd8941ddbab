"""Writes `dialects/jax/primitives.json`. In goes the installed JAX; out come the names of all its primitives that compute on arrays.

python -m distir.frontends.jax.generate_primitives"""

import json
from importlib import metadata
from pathlib import Path


def main() -> None:
    from distir.dialects.jax.parameters import primitives
    from distir.frontends.jax.trace import CALLS

    names = set(primitives()) - CALLS - {"scan"}
    table = {"jax": metadata.version("jax"), "primitives": sorted(names)}
    path = Path(__file__).resolve().parents[2] / "dialects" / "jax" / "primitives.json"
    path.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{len(names)} primitives of jax {table['jax']} in {path.name}")


if __name__ == "__main__":
    main()
