import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from backendops.services import catalog
from clustermgr.conf import GallerySource
from tests.api.conftest import root
from tests.factories import NOW

__all__ = ["root"]

Galleries = Callable[..., None]


@pytest.fixture
def galleries(settings: Settings, tmp_path: Path) -> Galleries:
    """Configure galleries as files with these entries, and read them."""

    def configure(**named: list[Any]) -> None:
        sources = []
        for name, entries in named.items():
            path = tmp_path / f"{name}.yaml"
            path.write_text(json.dumps(entries))  # JSON is YAML
            sources.append(GallerySource(name=name, url=str(path)))
        settings.CLUSTER = replace(settings.CLUSTER, backend_galleries=tuple(sources))
        catalog.check(now=NOW)

    return configure


def publish(settings: Settings) -> None:
    """Give the galleries that were read addresses that other machines can reach."""
    known = settings.CLUSTER.backend_galleries
    public = tuple(replace(one, url=f"https://{one.name}.example/index.yaml") for one in known)
    settings.CLUSTER = replace(settings.CLUSTER, backend_galleries=public)
