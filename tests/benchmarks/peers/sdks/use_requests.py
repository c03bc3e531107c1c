"""`import requests` and no more: the measure of a start."""

import requests  # noqa: F401


def start(endpoint: str, directory: str) -> None:
    """Do nothing."""
