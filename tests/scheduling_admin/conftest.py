from tests.backendops_admin.conftest import queries
from tests.nodes_admin.conftest import no_broker, operator, root, viewer

__all__ = ["no_broker", "operator", "queries", "root", "viewer"]
