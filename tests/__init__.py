"""The tests. This comes before `conftest.py` and all that it imports."""

import sys

# Else each process compiles all tests and all that they import, and pytest rewrites all of Hypothesis: some machines
# are told to keep nothing of it.
sys.dont_write_bytecode = False
