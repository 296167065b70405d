import pytest

from clustermgr.lib.errors import InvalidInput, PreconditionFailed
from nodes.models import ClusterEvent, NodeTaint
from nodes.services import taints
from nodes.states import TaintEffect
from nodes.taints import Taint
from tests.factories import NOW, make_node

pytestmark = pytest.mark.django_db

SPOT = Taint(key="spot", effect=TaintEffect.NO_SCHEDULE)
SLOW = Taint(key="disk", value="slow", effect=TaintEffect.PREFER_NO_SCHEDULE)


def test_a_node_has_exactly_the_taints_it_was_given() -> None:
    node = make_node()
    taints.replace(node, [SPOT], by="eve", now=NOW)

    changed = taints.replace(node, [SLOW], by="eve", now=NOW)

    assert [str(row) for row in NodeTaint.objects.filter(node=node)] == [
        "disk=slow:PreferNoSchedule"
    ]
    assert changed.version == 3
    event = ClusterEvent.objects.first()
    assert event is not None
    assert event.before == {"taints": ["spot=:NoSchedule"]}
    assert event.after == {"taints": ["disk=slow:PreferNoSchedule"]}


def test_the_same_taints_again_write_nothing() -> None:
    node = make_node()
    taints.replace(node, [SPOT, SLOW], by="eve", now=NOW)

    again = taints.replace(node, [SLOW, SPOT], by="eve", now=NOW)

    assert again.version == 2
    assert ClusterEvent.objects.count() == 1


@pytest.mark.parametrize(
    "bad",
    [
        [Taint(key="", effect=TaintEffect.NO_SCHEDULE)],
        [Taint(key="spot", effect="NoExecute")],
        [Taint(key="spot", value="\n", effect=TaintEffect.NO_SCHEDULE)],
        [SPOT, SPOT],
    ],
)
def test_a_taint_that_means_nothing_is_refused(bad: list[Taint]) -> None:
    node = make_node()
    with pytest.raises(InvalidInput):
        taints.replace(node, bad, by="eve", now=NOW)
    assert not NodeTaint.objects.exists()


def test_an_edit_of_an_old_version_is_refused() -> None:
    with pytest.raises(PreconditionFailed):
        taints.replace(make_node(), [SPOT], by="eve", now=NOW, expected_version=7)
