"""Analysis, by estimand: from a tally to a reading. A file an estimand; what they share stands in `inference`."""
