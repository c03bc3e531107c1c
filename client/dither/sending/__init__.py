"""How reports leave: one attempt, what its answer means, who makes it, and when."""
