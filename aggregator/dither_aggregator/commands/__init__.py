"""The aggregator's commands, found by name and loaded on use by `dither.cli`."""
