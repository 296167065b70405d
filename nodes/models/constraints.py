"""Pieces of schema that every model here uses."""

from django.db import models
from django.db.models import Q


def known(name: str, field: str, values: list[str]) -> models.CheckConstraint:
    """The check constraint that every choices field needs: Django itself guards nothing."""
    return models.CheckConstraint(name=name, condition=Q(**{f"{field}__in": values}))
