"""A program that uses a telemetry SDK, in the SDK's own environment: `program.py`, and a `use_*.py` for each."""
