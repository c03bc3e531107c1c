"""What a metric's integers mean for people: how sure somebody can become, who can be linked, what fakes can move."""
