from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from nats.aio.client import RawCredentials

from clustermgr.lib.natsauth import Key, Kind
from clustermgr.lib.natsauth.claims import credentials_file
from nodes.models import BackendNode, NodeCredential, NodeModel
from nodes.wire.subjects import LIST_BACKENDS
from tests.api.clients import Caller, Worker, read
from tests.contract.nats_server import Server
from tests.contract.responder import responding
from tests.factories import make_replica
from tests.services import until

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("boot_id", ["", "boot-1"], ids=["a LocalAI worker", "a worker of ours"])
def test_an_expired_credential_is_cut_and_renewed_without_losing_a_replica(
    managed: Server, worker: Worker, root: Caller, settings: Any, boot_id: str
) -> None:
    settings.CLUSTER = replace(settings.CLUSTER, nats_worker_jwt_ttl=timedelta(seconds=5))
    node_id = worker.joined(boot_id=boot_id)
    root.post(f"/api/nodes/{node_id}/approve")
    node = BackendNode.objects.get()
    make_replica(node)
    for _ in range(2):
        reply = read(worker.register(boot_id=boot_id))
        creds = RawCredentials(credentials_file(reply["nats_jwt"], reply["nats_user_seed"]))
        public = Key.from_seed(reply["nats_user_seed"], Kind.USER).public
        subject = LIST_BACKENDS.of(node_id)
        with responding(managed.url, subject, user_credentials=creds):
            assert public in managed.users()
            until(lambda gone=public: gone not in managed.users())  # type: ignore[misc]
    assert NodeModel.objects.count() == 1
    assert NodeCredential.objects.filter(revoked_at=None).count() == 3
