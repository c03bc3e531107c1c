"""Publishing: noisy totals of closed windows, once and for good, and a static site of them."""
