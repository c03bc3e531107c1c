"""Uploads once they are let in: reading one, limits and counts, and the threads that write, fold and watch."""
