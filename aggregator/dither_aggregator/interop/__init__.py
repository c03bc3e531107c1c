"""Files of other systems, which send and read reports through the ordinary wire."""
