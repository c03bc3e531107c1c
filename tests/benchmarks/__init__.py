"""`make bench`: each figure beside a naive version, a peer or a bound. `ARGS="speed"` runs one section."""
