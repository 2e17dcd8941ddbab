"""`distir-opt`: `xdsl-opt` plus distir's dialects, passes and ONNX frontend."""

import gc
from typing import IO

from xdsl.dialects.builtin import ModuleOp
from xdsl.xdsl_opt_main import xDSLOptMain

from distir.tools.universe import DISTIR_UNIVERSE


class DistirOptMain(xDSLOptMain):
    """The driver. An installed distir is found through its entry point; a bare checkout registers itself here."""

    version_format = "distir-opt (xdsl {xdsl_version})"

    def register_all_dialects(self) -> None:
        super().register_all_dialects()
        known = set(self.ctx.registered_dialect_names)
        for name, factory in DISTIR_UNIVERSE.all_dialects.items():
            if name not in known:
                self.ctx.register_dialect(name, factory)

    def register_all_passes(self) -> None:
        super().register_all_passes()
        self.available_passes.update(DISTIR_UNIVERSE.all_passes)

    def register_all_frontends(self) -> None:
        super().register_all_frontends()

        def parse_onnx(stream: IO[bytes]) -> ModuleOp:
            from distir.frontends.onnx import import_model

            return import_model(stream.name)

        self.available_frontends["onnx"] = parse_onnx


def main() -> None:
    # Building IR makes many cycles that stay alive; the default threshold costs 2-4x (measured on xDSL 0.74).
    gc.set_threshold(200_000, 50, 50)
    DistirOptMain(description="distir's optimizer driver: parse, run passes, print").run()


if __name__ == "__main__":
    main()
