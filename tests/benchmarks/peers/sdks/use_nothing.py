"""No SDK: what an interpreter costs anyway."""


def start(endpoint: str, directory: str) -> None:
    """Do nothing."""
