"""lit configuration: `lit tests/filecheck` or one file of it, from anywhere in the checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / ".ns"))  # this checkout, installed or not

from distir.tools.lit_configuration import configure

configure(config, __file__)
config.name = "distir"
