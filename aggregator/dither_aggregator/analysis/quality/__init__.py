"""Data quality: whether one day's counts can be those of devices that randomize as they should."""
