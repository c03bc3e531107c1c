"""Numbers as one linear channel: places of numbers, the law of reports, fits, and bounds that hold."""
