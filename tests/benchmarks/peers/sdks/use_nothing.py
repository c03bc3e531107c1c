"""No SDK: what an interpreter costs anyway."""


def start(endpoint: str, folder: str) -> None:
    """Do nothing."""
