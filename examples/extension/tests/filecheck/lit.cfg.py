"""lit configuration: that of distir."""

from distir.tools.lit_configuration import configure

configure(config, __file__)
