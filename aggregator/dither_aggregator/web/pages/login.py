"""`/login`: where a read or admin key is shown. `web/authentication.py` takes the form."""

from flask import render_template
from marshmallow import fields

from dither_aggregator.store import Store
from dither_aggregator.web.query_parameters import Parameters, query_parameters


class LoginAsked(Parameters):
    """The parameters of the login page: the page to go to afterwards, and whether the key was wrong."""

    next = fields.String(load_default="/")
    wrong = fields.String(load_default="")


def show(store: Store) -> str:
    """Return the page."""
    return render_template("login.html", **query_parameters(LoginAsked))
