"""The web SDK, run by Node, held against the Python one."""
