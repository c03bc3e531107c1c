"""Decoding: from the bits of each cohort to the shares of candidate texts, by regression."""
