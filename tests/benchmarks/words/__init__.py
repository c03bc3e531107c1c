"""FoundWords found without a list, beside the prefix extending method: how many, how frequent, and how many false."""
