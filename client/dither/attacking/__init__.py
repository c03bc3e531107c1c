"""Attacks to watch: an operator who keeps every report, and simulated devices whose answers are known.

trials.py               who attacks whom: metrics, days, devices, randomness; what was measured, with its interval
daily.py                answers without noise, and under noise that is drawn each day; how fast it averages away
memos.py                a memo, and a memo whose answer changes
attacks.py              all of them, by name
page.py                 what is shown: a table, one document, a page with plots
"""
