"""lit configuration: `lit tests/filecheck` or one file of it, from anywhere in the checkout. With `--param fork-server=1` tools are forks of one
process: worth it for many files."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / ".ns"))  # this checkout, installed or not

from distir.tools.lit_configuration import configure

run = None
if lit_config.params.get("fork-server"):
    sys.path.append(str(Path(__file__).resolve().parent))
    from tests import lit_server

    run = lit_server.command()
configure(config, __file__, run=run)
config.name = "distir"
