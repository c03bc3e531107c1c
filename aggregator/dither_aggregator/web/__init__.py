"""The aggregator over HTTP: reports in, estimates out, as JSON, CSV and pages. `endpoints.py` is the application."""
