"""Questions: what an analyst asks of what was collected, in one line, and its answer with an interval."""
