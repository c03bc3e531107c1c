"""Counting, by the shape of reports: reports to a tally, a tally to support counts. Nothing is estimated here."""
