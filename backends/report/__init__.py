"""Reports. In goes a simulation, or a search with its best plan's simulation; out comes one HTML file that needs
nothing else.

`page` writes the file: the data as JSON, in a page whose script (`report.js`, `report.css`) draws it. `run` makes
the data of a simulation, `plans` of a search."""

from distir.backends.report.page import search_report, simulation_report

__all__ = ["search_report", "simulation_report"]
