"""Simulated devices with known answers: what the estimates should say can be checked.

The one room of the aggregator that uses the SDK, as a host app would.
"""
