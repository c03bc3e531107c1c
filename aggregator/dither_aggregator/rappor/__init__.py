"""RAPPOR on the aggregator: google/rappor's files, and the decoder that turns a tally into shares."""
