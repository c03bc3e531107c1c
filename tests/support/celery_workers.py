"""Workers of Celery, as a caller sees them."""

from celery import Celery


def is_idle(app: Celery) -> bool:
    """Tell whether the app's one worker has nothing in hand.

    One that is told to end before it has read what its processes answered has them wait for half a minute.
    """
    asked = app.control.inspect(timeout=5, limit=1)
    answers = [asked.active(), asked.reserved()]
    return all(answer and not any(answer.values()) for answer in answers)
