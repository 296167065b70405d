import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from clustermgr import tokens
from clustermgr.lib.errors import Unauthenticated
from clustermgr.models import ApiToken
from clustermgr.roles import ensure_groups
from tests.factories import NOW


def test_only_the_digest_of_a_token_is_stored(superuser: User) -> None:
    token, secret = tokens.issue(superuser, name="ci", now=NOW)
    stored = ApiToken.objects.values().get(pk=token.pk)
    assert secret not in str(stored)


def test_a_live_token_opens(superuser: User) -> None:
    token, secret = tokens.issue(superuser, name="ci", now=NOW)
    assert tokens.authenticate(secret, now=NOW) == token


def test_unknown_expired_revoked_and_orphaned_tokens_are_told_the_same(superuser: User) -> None:
    _, expired = tokens.issue(superuser, name="a", now=NOW, expires_at=NOW)
    revoked_token, revoked = tokens.issue(superuser, name="b", now=NOW)
    tokens.revoke(revoked_token, now=NOW)
    leaver = User.objects.create_user("leaver", is_active=False)
    _, orphaned = tokens.issue(leaver, name="c", now=NOW)
    sentences = set()
    for secret in ("cm_never-issued", expired, revoked, orphaned):
        with pytest.raises(Unauthenticated) as refusal:
            tokens.authenticate(secret, now=NOW)
        sentences.add(str(refusal.value))
    assert len(sentences) == 1


def test_use_is_noted_at_most_once_a_minute(superuser: User) -> None:
    token, secret = tokens.issue(superuser, name="ci", now=NOW)
    for seconds in (0, 30, 59):
        tokens.authenticate(secret, now=NOW + timedelta(seconds=seconds))
    token.refresh_from_db()
    assert token.last_used_at == NOW
    tokens.authenticate(secret, now=NOW + timedelta(seconds=61))
    token.refresh_from_db()
    assert token.last_used_at == NOW + timedelta(seconds=61)


def test_a_script_without_a_token_is_told_which_kind_it_needs(db: None) -> None:
    reply = APIClient().get("/metrics")
    assert reply.status_code == 401
    assert reply.headers["WWW-Authenticate"] == "Bearer"
    assert reply.json()["code"] == "not_authenticated"


def test_the_secret_is_shown_once_when_made_in_the_admin(admin_client: Client) -> None:
    page = admin_client.post("/admin/clustermgr/apitoken/add/", {"name": "ci"}, follow=True)
    token = ApiToken.objects.get()
    assert token.prefix in page.content.decode()
    assert "not shown again" in page.content.decode()
    again = admin_client.get("/admin/clustermgr/apitoken/", follow=True)
    assert "not shown again" not in again.content.decode()


def test_a_program_gets_a_token_of_its_own_user(admin_client: Client) -> None:
    ensure_groups()
    gateway = User.objects.create_user("gateway")
    gateway.groups.add(Group.objects.get(name="caller"))
    form = {"name": "gateway", "user": gateway.pk}
    page = admin_client.post("/admin/clustermgr/apitoken/add/", form, follow=True)
    assert ApiToken.objects.get().user == gateway
    [secret] = set(re.findall(r"cm_[\w-]{20,}", page.content.decode()))
    script = APIClient(headers={"Authorization": f"Bearer {secret}"})
    assert script.post("/api/route", {"model": "nobody"}, format="json").status_code == 404
    assert script.get("/api/nodes").status_code == 403


def test_nobody_gives_out_a_token_that_opens_more_than_they_may(superuser: User) -> None:
    ensure_groups()
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="add_apitoken"))
    operator = User.objects.create_user("ops")
    operator.groups.add(Group.objects.get(name="operator"))
    browser = Client()
    browser.force_login(clerk)
    for user in (superuser, operator):
        form = {"name": "more", "user": user.pk}
        page = browser.post("/admin/clustermgr/apitoken/add/", form)
        assert f"{user} may do things that you may not." in page.content.decode()
    assert not ApiToken.objects.exists()


def test_revoking_is_a_post_and_a_get_changes_nothing(admin_client: Client) -> None:
    admin_client.post("/admin/clustermgr/apitoken/add/", {"name": "ci"})
    token = ApiToken.objects.get()
    url = reverse("admin:clustermgr_apitoken_revoke", args=[token.pk])
    asked = admin_client.get(url, follow=True)
    token.refresh_from_db()
    assert (asked.status_code, token.revoked_at) == (200, None)
    admin_client.post(url, {"_form_submitted": "on"})
    token.refresh_from_db()
    assert token.revoked_at is not None
