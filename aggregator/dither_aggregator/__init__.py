"""The aggregator: takes reports, folds them into tallies and shows what the noise lets through.

The package dither-aggregator. `aggregator/README.md` explains its rooms.
"""
