"""A shop that people host themselves, in Django, with telemetry: a middleware records, one installation is one device.

SHOP_DATA=/var/lib/shop SHOP_TELEMETRY=on gunicorn --workers 4 shop:app
"""

import os
from collections.abc import Callable
from pathlib import Path

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

import dither

METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT, KEY = "https://telemetry.example.org", "the key that serve printed"

# In a project of several files this is a module of its own, which middleware and views import. Each worker starts it,
# or with --preload the master; all of them share the one file in data_dir, and so one budget.
telemetry = dither.start(
    METRICS,
    endpoint=ENDPOINT,
    key=KEY,
    data_dir=Path(os.environ["SHOP_DATA"]) / "telemetry",
    consent={"on": True, "off": False}.get(os.environ.get("SHOP_TELEMETRY", "")),  # whoever installs it decides
    development=os.environ.get("SHOP_DEBUG") == "1",  # answers at once, to an aggregator on this machine alone
)


class Telling:
    """A middleware: how long a page takes, on which Django. A day's first answer counts, later ones cost nothing."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request. A page that fails is timed, too, and its error goes on."""
        telemetry.django.record(".".join(map(str, django.VERSION[:2])))
        with telemetry.page_time.timing():
            return self._get_response(request)


def page(request: HttpRequest) -> HttpResponse:
    """Show the shop."""
    return HttpResponse("Welcome to the shop.\n")


urlpatterns = [path("", page)]

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    MIDDLEWARE=[f"{__name__}.Telling"],
    ROOT_URLCONF=__name__,
)
app = get_wsgi_application()
