"""Attacks to watch: an operator who keeps every report, and simulated devices whose answers are known.

trials.py               who attacks whom: metrics, days, devices, randomness; what was measured, with its interval
daily.py                answers without noise, and under noise that is drawn each day; how fast it averages away;
                        what is left of the figures that readers get without an attacker's own reports
memos.py                a memo, and a memo whose answer changes; new terms each month: a rev, an integer, a name;
                        who is recognised among devices with the same answer
attacks.py              all of them, by name; what is shown: a table, one document, a page with plots
"""
