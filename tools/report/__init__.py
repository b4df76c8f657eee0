"""The parts of tools/report.py: scales and SVG, one module per kind of figure, and the page that holds them."""
