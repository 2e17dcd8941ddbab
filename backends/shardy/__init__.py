"""Annotated modules to Shardy's `sdy` dialect and back (https://openxla.org/shardy).

    text = export_module(module)        # rules, strategies and shardings as `sdy` annotations: MLIR that Shardy's tools read
    import_shardings(text, module)      # annotates a module as such a text of the same program says
    module = import_module(text)        # the annotated program that the text is

`rules` and `shardings` translate attributes, `annotations` the annotations of one operation; `exporting` and
`importing` walk modules. Annotations that Shardy cannot express stay in the text as `dist` attributes
(docs/backends.md)."""

from distir.backends.shardy.exporting import export_module, with_shardy
from distir.backends.shardy.importing import import_module, import_shardings

__all__ = ["export_module", "import_module", "import_shardings", "with_shardy"]
