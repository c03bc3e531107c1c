"""google/rappor: its parameter, count and report files, read, decoded and imported."""
