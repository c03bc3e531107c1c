"""Devices' files in memory."""

from tests.support.in_memory import tmp_path as tmp_path
