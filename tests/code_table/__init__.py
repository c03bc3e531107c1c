"""How the table of dither_shared/words was made, and how to make another one."""
