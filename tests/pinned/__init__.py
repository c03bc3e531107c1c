"""Numbers that no change of the code may change: epsilons, integers, errors, ledgers, estimates, decodings.

`vectors/` keeps them as plain JSON. `adapter.py` is all that knows how the code is called today. `python -m
tests.pinned` writes the vectors again, for whoever changes a number on purpose.
"""
