"""The aggregator: takes reports, folds them into tallies and shows what the noise lets through.

Needs the extra `dither[aggregator]`. `aggregator/README.md` explains its rooms.
"""
