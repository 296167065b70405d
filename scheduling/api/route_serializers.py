"""What the lease endpoints take and give, for the schema and for callers through Django."""

from rest_framework import serializers

from nodes.api.serializers import ErrorOut
from scheduling.api.routebody import MOST_LEASES
from scheduling.api.serializers import LoadStatusOut
from scheduling.services.complaints import Complaint


class RouteIn(serializers.Serializer):
    model = serializers.CharField(max_length=255)
    prompt_prefix = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, default=""
    )
    chain = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=2**64 - 1),
        max_length=64,
        required=False,
        default=list,
    )
    session = serializers.CharField(required=False, allow_blank=True, default="", max_length=512)
    revision = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)
    timeout = serializers.FloatField(required=False, allow_null=True, default=None)
    ttl = serializers.FloatField(required=False, allow_null=True, default=None)


class PlaceOut(serializers.Serializer):
    id = serializers.UUIDField()
    name = serializers.CharField()


class SlotOut(serializers.Serializer):
    id = serializers.UUIDField()
    index = serializers.IntegerField()


class LeaseOut(serializers.Serializer):
    lease_id = serializers.UUIDField()
    model = serializers.CharField()
    node = PlaceOut()
    replica = SlotOut()
    address = serializers.CharField()
    revision = serializers.CharField()
    expires_at = serializers.DateTimeField()
    how = serializers.CharField()
    why = serializers.CharField()


class NotYetOut(ErrorOut):
    """Nothing to lease now; with `Retry-After`, and the load where there is one."""

    loading = LoadStatusOut(required=False)


class ReleasedOut(serializers.Serializer):
    released = serializers.BooleanField()


class ReleaseManyIn(serializers.Serializer):
    leases = serializers.ListField(child=serializers.CharField(), max_length=MOST_LEASES)


class ReleasedManyOut(serializers.Serializer):
    released = serializers.IntegerField()


class RenewIn(serializers.Serializer):
    ttl = serializers.FloatField(required=False, allow_null=True, default=None)


class RenewedOut(serializers.Serializer):
    lease_id = serializers.UUIDField()
    expires_at = serializers.DateTimeField()


class FailureIn(serializers.Serializer):
    kind = serializers.ChoiceField(Complaint.choices)
    detail = serializers.CharField(required=False, allow_blank=True, default="", max_length=2000)
    another = serializers.BooleanField(required=False, default=True)


class FailedOut(serializers.Serializer):
    replica = serializers.UUIDField()
    done = serializers.CharField()
    lease = LeaseOut(allow_null=True)
