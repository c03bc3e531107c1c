"""FoundWords that nobody listed: found by their prefixes, decided by reports that took no part in finding them."""
