from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from nodes.services import labels
from tests.factories import NOW, make_node


@pytest.mark.django_db(transaction=True)
def test_operators_who_add_labels_at_the_same_time_lose_none_of_them() -> None:
    node = make_node()

    def add(number: int) -> None:
        try:
            labels.merge_admin(node, {f"k{number}": "x"}, by="eve", now=NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(add, range(24)))

    assert len(labels.effective([node.pk])[node.pk]) == 24
    node.refresh_from_db()
    assert node.version == 25
