import pytest
from django.test import Client


@pytest.mark.django_db
def test_login_page(client: Client) -> None:
    assert client.get("/admin/login/").status_code == 200
