"""Where models come from: a name such as `transformers:causal:llama`, `timm:test_vit`, `plain:lstm` or `package:magika/models/x.onnx` goes
in; a module with example inputs, or the path of a file and example inputs, come out.

Packages beside PyTorch are asked for when a model of theirs is made; `benchmarks/models/README.md` says which to install."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

BATCH = 4


class NotInstalled(Exception):
    """Of a package that has the model."""


def made(source: str, options: Mapping[str, Any]) -> tuple[nn.Module, list[Tensor]]:
    """A module in evaluation mode, and example inputs, always the same."""
    library, _, name = source.partition(":")
    torch.manual_seed(0)
    if library == "plain":
        from benchmarks.models.structures import PLAIN

        model, inputs = PLAIN[name]()
        return model.eval(), inputs
    if find_spec(library) is None:
        raise NotInstalled(library)
    import_torchvision()  # transformers does, if it is there
    if library == "transformers":
        from benchmarks.models.small import small_model

        task, _, model_type = name.partition(":")
        return small_model(task, model_type, **options)
    more = {key: value for key, value in options.items() if key != "size"}
    if library == "timm":
        timm = import_module("timm")
        model = timm.create_model(name, num_classes=8, **more)
        own = model.default_cfg["input_size"][-1]
    else:
        model = import_module("torchvision.models").get_model(name, weights=None, num_classes=8, **more)
        own = 64
    size = int(options.get("size", own))
    return model.eval(), [torch.randn(BATCH, 3, size, size)]


def import_torchvision() -> None:
    """A torchvision that was built for another torch cannot load its own operators, and importing it asks for two. Classifiers need none:
    those two are declared, and have no kernels."""
    if find_spec("torchvision") is None:
        return
    try:
        import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        import_module("torchvision")


_kept: list[Any] = []


def file_of(source: str) -> Path:
    """The file that a package ships: `package:magika/models/standard/model.onnx`, which is `models/standard/model.onnx` in the folder of the
    package `magika`; or `example:gpt2_onnx`, which a script of this project writes."""
    package, _, path = source.partition(":")[2].partition("/")
    if (spec := find_spec(package)) is None or not spec.submodule_search_locations:
        raise NotInstalled(package)
    return Path(spec.submodule_search_locations[0]) / path
