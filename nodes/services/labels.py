"""Labels: stands in until the module with owners, auto labels and edits is merged."""

from collections.abc import Mapping
from datetime import datetime

from nodes.models import BackendNode, NodeLabel
from nodes.states import LabelSource


def apply_registration(
    node: BackendNode,
    *,
    reported: Mapping[str, str],
    token_labels: Mapping[str, str],
    now: datetime,
) -> None:
    """Merge what the worker reports and what its token gives; other owners' labels stay."""
    rows = [
        NodeLabel(node=node, key=key, value=value, source=source)
        for source, labels in (
            (LabelSource.WORKER, reported),
            (LabelSource.TOKEN, token_labels),
        )
        for key, value in labels.items()
    ]
    NodeLabel.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["node", "key", "source"],
        update_fields=["value"],
    )
