"""Numeric metrics beside published references: the error of distributions, quantiles, point masses and means."""
