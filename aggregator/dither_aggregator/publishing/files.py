"""The names of a site's files: known without all that makes them."""

import re

MANIFEST, ABOUT, STYLE, AUDIT, FEED = "manifest.json", "about.json", "style.css", "audit.html", "feed.xml"
FILE_BYTES_MAX = 1 << 22
PART = re.compile(r"([a-z][a-z0-9_]{0,62}/)?[A-Za-z0-9_-]+(\.counts)?\.(css|csv|html|json|svg|xml)")
"""The path of a file of a site. No other one is removed, or served (`web/public_site.py`)."""
