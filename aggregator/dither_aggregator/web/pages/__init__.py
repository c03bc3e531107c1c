"""The pages: what can be told, each at an address of its own. One optional script, no outside request."""
