"""The auditor: holds what a randomizer declares against its exact law, and against what it does when it runs.

coins.py                 the law of each decision of the SDK's coins, by its own code over all random bits
laws.py                  the law of a randomizer: its own code, once for every sequence of decisions it can make
samples.py               who draws samples; what these prove of a privacy loss, and can be expected to prove
claims.py                a claim: inputs, what draws an outcome, and the most that outcomes may tell inputs apart; its
                         exact loss; the claims of a metric about one report
black_box.py             tests a claim on samples, by an event that is known beforehand and by two that are learned
simulated.py             a whole device in memory; pairs of lives that differ in their answers alone: nothing may show
devices.py               the claims of a metric about whole devices; every draw held against the code whose law is told
memos.py                 the likelihood of reports that copy one memo; how many devices can be recognised over time
adapters.py              any randomizer as a claim
auditing.py              an audit of many claims, and what is shown of it
"""
