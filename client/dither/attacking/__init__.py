"""Attacks to watch: an operator who keeps every report, and simulated devices whose answers are known.

trials.py               who attacks whom: metrics, days, devices, randomness; what was measured, with its interval
guessing.py             how far the reports of a device speak for one answer against another
daily.py                answers without noise, and under noise that is drawn each day; how fast it averages away
memos.py                a memo, and a memo whose answer changes
revs.py                 new terms each month: a rev, an integer, a name
memo_linking.py         who is recognised among devices with the same answer
surrounding.py          what is left of the figures that readers get without an attacker's own reports
attacks.py              all of them, by name
tables.py, page.py      what is shown: a table, one document, a page with plots
"""
