"""The loss of all that a device gives away: of several outputs together, with the proof by which it holds."""
