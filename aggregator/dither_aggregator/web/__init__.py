"""The aggregator over HTTP: reports in, estimates out, as JSON, CSV and pages. `app.py` is the application."""
