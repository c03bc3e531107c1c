"""The work behind uploads and pages: operators' changes, maintenance, loading and computing, signals and logs."""
