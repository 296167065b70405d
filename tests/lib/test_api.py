from typing import Any

import pytest
from django.http import Http404
from rest_framework import serializers, status
from rest_framework.exceptions import NotAuthenticated, ParseError

from clustermgr.lib import errors
from clustermgr.lib.api import exception_handler


def _every_error() -> list[type[errors.DomainError]]:
    found = [errors.DomainError]
    for kind in found:
        found += kind.__subclasses__()
    return found


def handled(error: Exception) -> tuple[int, Any]:
    response = exception_handler(error, {})
    assert response is not None
    return response.status_code, response.data


@pytest.mark.parametrize("kind", _every_error())
def test_a_refusal_keeps_its_sentence_its_code_and_its_status(
    kind: type[errors.DomainError],
) -> None:
    status, body = handled(kind("Because."))
    assert status == kind.http_status
    assert (body["code"], body["detail"]) == (kind.code, "Because.")
    assert body["error"]["message"] == "Because."


def test_codes_are_not_shared() -> None:
    codes = [kind.code for kind in _every_error()]
    assert len(codes) == len(set(codes))


def test_a_bad_field_is_named() -> None:
    error = serializers.ValidationError({"name": ["This field is required."]})
    code, body = handled(error)
    assert code == status.HTTP_400_BAD_REQUEST
    assert body["code"] == "invalid_input"
    assert body["detail"] == "name: This field is required."
    assert body["errors"] == {"name": ["This field is required."]}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Http404(), "not_found"),
        (NotAuthenticated(), "not_authenticated"),
        (ParseError(), "parse_error"),
    ],
)
def test_frameworks_errors_wear_the_same_envelope(error: Exception, code: str) -> None:
    _, body = handled(error)
    assert body["code"] == code
    assert body["detail"]


def test_a_bug_is_not_dressed_up_as_a_refusal() -> None:
    assert exception_handler(ZeroDivisionError(), {}) is None
