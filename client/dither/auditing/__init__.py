"""The auditor: holds what a randomizer declares against its exact law, and against what it does when it runs.

coins.py                 the law of each decision of the SDK's coins, by its own code over all random bits
symbolic_rng.py, exact.pythe law of a randomizer: its own code, once for every sequence of decisions it can make
bounds.py                what samples prove of a privacy loss, and how much they can be expected to prove
claims.py                a claim: inputs, what draws an outcome, and the most that outcomes may tell inputs apart
black_box.py             tests a claim on samples, by an event that is known beforehand and by two that are learned
plans.py, devices.py     the claims of a metric: of one report, and of whole devices
traced.py                every draw of a device, held against the code whose law is told
lives.py                 pairs of lives that differ in their answers alone: nothing of that may show
linking.py               how many devices with the same answer can be recognised over time
simulated.py             a whole device in memory
memo_likelihood.py       the likelihood of reports that copy one memo
adapters.py              any randomizer as a claim
auditing.py, tables.py   an audit of many claims, and what is shown of it
"""
