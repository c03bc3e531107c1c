"""`make bench`: each figure beside a naive version, in the same run. `ARGS="fold"` runs one section."""
