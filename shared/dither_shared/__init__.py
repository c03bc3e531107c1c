"""Everything that device and aggregator must agree on: the metric, its mechanism, its exact epsilon and the wire.

Standard library only. See `shared/README.md` for the rooms, the formulas and the format.
"""
