"""Four groups that fit most teams. They belong to the code: every start sets them anew.

Whoever needs something in between makes a group of his own; that one is never touched.
"""

from django.contrib.auth.models import Group, Permission
from django.db import transaction

VIEWER = frozenset(
    {
        "nodes.view_backendnode",
        "nodes.view_nodemodel",
        "nodes.view_nodelabel",
        "nodes.view_nodetaint",
        "nodes.view_jointoken",
        "nodes.view_clusterevent",
        "nodes.view_clusterstate",
        "backendops.view_operation",
        "backendops.view_pendingbackendop",
        "backendops.view_nodebackend",
        "backendops.view_nodeinventory",
        "backendops.view_gallerybackend",
        "scheduling.view_modelloadinfo",
        "scheduling.view_modelschedulingconfig",
        "scheduling.view_loadjob",
        "scheduling.view_placementdecision",
        "scheduling.view_routelease",
    }
)
OPERATOR = VIEWER | {
    "nodes.view_logs",  # not for viewers: backends print prompts, paths and sometimes keys
    "nodes.approve_backendnode",
    "nodes.cordon_backendnode",
    "nodes.drain_backendnode",
    "nodes.label_backendnode",
    "nodes.change_clusterevent",
    "backendops.request_operation",
    "backendops.cancel_operation",
    "backendops.acknowledge_operation",
    "scheduling.operate_model",
    "scheduling.request_route",
    "scheduling.add_modelloadinfo",
    "scheduling.change_modelloadinfo",
    "scheduling.change_modelschedulingconfig",
}
ADMIN = OPERATOR | {
    "nodes.retire_backendnode",
    "scheduling.delete_modelloadinfo",
    "nodes.add_jointoken",
    "nodes.change_jointoken",
    *(
        f"{model[0]}.{verb}_{model[1]}"
        for model in (("auth", "user"), ("auth", "group"), ("clustermgr", "apitoken"))
        for verb in ("view", "add", "change", "delete")
    ),
}
# A program that sends requests to models, and sees nothing else of the cluster
CALLER = frozenset({"scheduling.request_route"})
ROLES = {"viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN, "caller": CALLER}


@transaction.atomic
def ensure_groups() -> None:
    """Make the groups be what ROLES says; after the migrations, which make the permissions."""
    known = {
        f"{permission.content_type.app_label}.{permission.codename}": permission
        for permission in Permission.objects.select_related("content_type")
    }
    for name, wanted in ROLES.items():
        group, _ = Group.objects.get_or_create(name=name)
        group.permissions.set([known[codename] for codename in wanted])
