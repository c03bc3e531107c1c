"""Charts, drawn as SVG: positions across in percent of the chart's width, so that one fits every screen."""
