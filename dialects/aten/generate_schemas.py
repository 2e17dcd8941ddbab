"""Writes `schemas.txt`. In goes the installed torch; out come its functional operators, one a line as torch itself
prints them.

    python -m distir.dialects.aten.generate_schemas

Run it when torch is upgraded. The dialect reads this instead of importing torch, which takes longer than a whole run
of `distir-opt`. A word before a schema marks its operator: `random` if it draws random numbers; `loops` if it does a
few flops for each element, by its tags or since Inductor makes loops of it.
"""

from pathlib import Path
from typing import Any

import torch
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings

_C: Any = getattr(torch, "_C")
LOOPS = {torch.Tag.pointwise, torch.Tag.reduction, torch.Tag.view_copy, torch.Tag.nondeterministic_seeded}


def schema_lines() -> list[str]:
    """Every overload of `aten` that the dispatcher knows, writes to none of its arguments, and returns a tensor."""
    schemas: list[Any] = getattr(_C, "_jit_get_all_schemas")()
    lines: list[str] = []
    for schema in schemas:
        namespace, _, name = schema.name.partition("::")
        if namespace != "aten" or schema.is_mutable or any(argument.is_out for argument in schema.arguments):
            continue
        if not schema.returns or not all(str(result.type) in ("Tensor", "List[Tensor]") for result in schema.returns):
            continue
        overload: Any = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
        if not getattr(_C, "_dispatch_has_kernel")(overload.name()):
            continue
        marks = {
            "random": torch.Tag.nondeterministic_seeded in overload.tags,
            "loops": _is_loops(name, overload),
        }
        lines.append(" ".join([*(mark for mark, holds in marks.items() if holds), str(schema)]))
    return sorted(lines, key=lambda line: line[line.index("aten::") :])


def _is_loops(name: str, overload: Any) -> bool:
    if not LOOPS.isdisjoint(overload.tags):
        return True
    if (of_lists := name.removeprefix("_foreach_")) != name:
        packet = getattr(torch.ops.aten, of_lists, None)
        return packet is not None and any(_is_loops(of_lists, getattr(packet, each)) for each in packet.overloads())
    if (lowering := lowerings.get(overload)) is not None:
        return not getattr(lowering, "_is_fallback_handler", False)
    composite = getattr(_C, "_dispatch_has_kernel_for_dispatch_key")(overload.name(), "CompositeImplicitAutograd")
    return overload in decompositions and not composite


def main() -> None:
    text = "\n".join([f"# torch {torch.__version__.partition('+')[0]}", *schema_lines()])
    Path(__file__).with_name("schemas.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
