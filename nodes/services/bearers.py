"""The secret that opens a worker's HTTP server and its backends' gRPC.

Both are guarded with the token that the worker joined with: we recognise it by its digest, and
keep it sealed to say it to the workers that have it. A secret is sent to no node but those that
joined with it, so nobody learns one here that he does not have.
"""

from django.conf import settings

from clustermgr.lib.errors import WorkerTokenUnknown
from clustermgr.lib.sealing import unseal
from nodes.models import BackendNode
from nodes.services import jointokens


def of(node: BackendNode) -> str:
    """The secret that this node's worker joined with, or why it is not known."""
    token = node.join_token
    cluster = settings.CLUSTER
    given = (secret.strip() for secret in cluster.worker_http_tokens.split(","))
    for secret in filter(None, (cluster.registration_token, *given)):
        if token is not None and jointokens.digest(secret) == token.digest:
            return secret
    if token is not None and token.sealed and (kept := unseal(bytes(token.sealed))):
        return kept
    joined = f"joined with the token {token.name}" if token else "has to register again"
    raise WorkerTokenUnknown(
        f"{node.name} {joined}, and its logs and backends open only with that secret, which we"
        " cannot read any more (DJANGO_SECRET_KEY has changed, or the token is older than the"
        " keeping of secrets). Put it into CLUSTER_WORKER_HTTP_TOKENS and restart, or let the"
        " worker join with a new token."
    )
