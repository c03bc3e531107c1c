"""A metric's integers in people's words: how sure somebody can become, who can be linked, what fakes can move."""
