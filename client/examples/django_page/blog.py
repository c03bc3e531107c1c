"""A blog in Django whose readers' browsers report: each is a device of its own, and this server sees no answer.

The package is unpacked into static/dither-web, and the registry compiled beside it, at each release:

    dither metrics compile metrics.toml --out static/metrics.json
    gunicorn blog:app
"""

from pathlib import Path

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.html import format_html
from django.views.static import serve

ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"
POLICY = f"default-src 'none'; script-src 'self'; connect-src 'self' {ENDPOINT}"
PAGE = """<!doctype html>
<html lang="en" data-endpoint="{}" data-key="{}">
<meta charset="utf-8">
<title>A blog</title>
<article>Welcome to the blog.</article>
<p>Did you find what you looked for? <button value="yes">Yes</button> <button value="no">No</button></p>
<dialog><ul></ul><button id="agree">I agree</button> <button id="refuse">No</button></dialog>
<script type="module" src="static/page.js"></script>
</html>
"""


def page(request: HttpRequest) -> HttpResponse:
    """Show the blog. The key is no secret: every reader has it."""
    return HttpResponse(format_html(PAGE, ENDPOINT, KEY), headers={"Content-Security-Policy": POLICY})


urlpatterns = [
    path("", page),
    path("static/<path:path>", serve, {"document_root": Path(__file__).with_name("static")}),  # a proxy's, in earnest
]

settings.configure(ALLOWED_HOSTS=["127.0.0.1", "localhost"], ROOT_URLCONF=__name__)
app = get_wsgi_application()
