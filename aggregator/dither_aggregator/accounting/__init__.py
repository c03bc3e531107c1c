"""What a device gives away in all: the loss of several outputs together, by which proof it holds."""
