"""Files that an emitted program takes along: nothing in them imports distir, so that the program runs where there is none. There they lie
side by side and import each other as modules at top level; here each has both names."""

import sys
from importlib import import_module

for _name in ("distir_runtime", "distir_collectives", "distir_arrays"):  # each after those that it imports
    _own = f"{__name__}.{_name}"
    if _name in sys.modules:  # of an emitted program that runs here
        sys.modules[_own] = globals()[_name] = sys.modules[_name]
    else:
        sys.modules[_name] = import_module(_own)
