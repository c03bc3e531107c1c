"""Arguments that several commands have in common."""
