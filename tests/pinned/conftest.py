"""Stores in memory, and the Redis servers of some."""

from tests.support.in_memory import tmp_path as tmp_path
