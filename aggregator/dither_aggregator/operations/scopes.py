"""The names of what keys may do. Loads no store."""

WRITE, READ, ADMIN = SCOPES = ("write", "read", "admin")
"""A write key uploads and does nothing else. An admin key may also do what a read key may."""
READING = (READ, ADMIN)
