"""Words: the code in which texts are looked for that nobody has listed, and which reports tell what of it."""
