"""The commands that work with the core install alone."""
