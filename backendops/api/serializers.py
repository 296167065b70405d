"""Shapes of operations on the wire, for reading bodies and for the description of the API.

Answers are built in shapes.py; the schema test holds them to what is said here.
"""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from backendops.states import OperationState, OpState, Verb
from clustermgr.lib import gojson
from clustermgr.lib.errors import InvalidInput
from nodes.api.fields import Text, Whole
from nodes.api.serializers import MessageOut

NODE_STATUSES = ("queued", "downloading", "running_on_worker", "success", "error")
MOST_NODES = 10_000
MOST_LETTERS = 10_000
Field = serializers.Field


def words(limit: int = 255, **more: Any) -> Text:
    """Text that may be left out."""
    return Text(max_length=limit, required=False, allow_blank=True, default="", **more)


class SentenceOut(serializers.Serializer):
    """Every refusal: a code for programs, a sentence for people, and once more for LocalAI's."""

    code = serializers.CharField()
    detail = serializers.CharField()
    error = serializers.CharField()
    # DRF takes declared fields out of the class: its own `errors` stays what it was
    errors = serializers.JSONField(required=False)  # type: ignore[assignment]
    meta_alternative = serializers.CharField(required=False)


@extend_schema_field(
    {
        "oneOf": [
            {"type": "string", "description": "The list below, encoded as JSON."},
            {
                "type": "array",
                "maxItems": 20,
                "items": {
                    "type": "object",
                    "required": ["url"],
                    "properties": {"name": {"type": "string"}, "url": {"type": "string"}},
                },
            },
        ]
    }
)
class GalleriesField(serializers.Field):
    """A list of galleries, or, as LocalAI's clients send it, that list in a string."""

    default_error_messages = {"invalid": "must be a list of galleries, or one as a JSON string."}

    def to_internal_value(self, data: Any) -> list[dict[str, Any]]:
        if isinstance(data, str):
            data = self._inside(data)
        if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
            self.fail("invalid")
        found: list[dict[str, Any]] = data
        return found

    def to_representation(self, value: Any) -> Any:
        return value

    def _inside(self, text: str) -> Any:
        try:
            return gojson.parse_unambiguous(text.encode()) if text else []
        except (InvalidInput, ValueError):  # ValueError: half of a surrogate pair
            self.fail("invalid")


class BackendIn(serializers.Serializer):
    backend = Text(max_length=255)
    reason = words()


class ExternalIn(serializers.Serializer):
    """`uri` alone installs what is there, under its own name."""

    uri = Text(max_length=2048)
    name = words()
    alias = words()
    reason = words()


class InstallIn(ExternalIn):
    """A backend of a gallery, or a uri."""

    backend = words()
    uri = words(2048)
    backend_galleries: Field = GalleriesField(required=False, default=list)
    despite_mismatch = serializers.BooleanField(required=False, default=False)


class ApplyIn(serializers.Serializer):
    id = Text(max_length=511)
    force = serializers.BooleanField(required=False, default=False)


class OperationIn(InstallIn):
    """One order for many nodes: exactly one of `nodes`, `selector` and `all`."""

    verb = serializers.ChoiceField(Verb.choices)
    nodes = serializers.ListField(
        child=Text(max_length=255), required=False, default=list, max_length=MOST_NODES
    )
    selector = words(1024)
    all = serializers.BooleanField(required=False, default=False)
    dry_run = serializers.BooleanField(required=False, default=False)


class UpgradeAllIn(serializers.Serializer):
    backends = serializers.ListField(
        child=Text(max_length=255), required=False, default=list, max_length=1000
    )
    dry_run = serializers.BooleanField(required=False, default=False)
    reason = words()


class LettersIn(serializers.Serializer):
    """Which dead letters: their ids, those of a cause, or all."""

    ops = serializers.ListField(
        child=Whole(min_value=1, max_value=2**62),
        required=False,
        default=list,
        max_length=MOST_LETTERS,
    )
    cause = words(1024, trim_whitespace=False)
    all = serializers.BooleanField(required=False, default=False)


class DiscardIn(LettersIn):
    reason = Text(max_length=255)


class SkippedOut(serializers.Serializer):
    node = serializers.CharField()
    name = serializers.CharField()
    why = serializers.CharField()


class AcceptedOut(MessageOut):
    jobID = serializers.CharField()
    statusUrl = serializers.CharField()
    created = serializers.BooleanField()
    skipped = SkippedOut(many=True)


class DoneOut(MessageOut):
    success = serializers.BooleanField()


class CountOut(DoneOut):
    count = serializers.IntegerField()


class JobOut(serializers.Serializer):
    """LocalAI's job; `processed` means that nothing is under way any more."""

    progress = serializers.FloatField()
    message = serializers.CharField(allow_blank=True)
    galleryElementName = serializers.CharField()
    processed = serializers.BooleanField()
    deletion = serializers.BooleanField()
    queued = serializers.BooleanField()
    completed = serializers.BooleanField(required=False)
    cancelled = serializers.BooleanField(required=False)
    error = serializers.CharField(required=False)
    state = serializers.ChoiceField(OperationState.choices)
    jobID = serializers.CharField()


class OpOut(serializers.Serializer):
    """One node's share: LocalAI's keys first, then ours."""

    node_id = serializers.UUIDField()
    node_name = serializers.CharField()
    status = serializers.ChoiceField(NODE_STATUSES)
    file_name = serializers.CharField(allow_blank=True)
    current = serializers.CharField()
    total = serializers.CharField()
    percentage = serializers.FloatField()
    phase = serializers.CharField(allow_blank=True)
    error = serializers.CharField(allow_blank=True)
    op = serializers.IntegerField()
    state = serializers.ChoiceField(OpState.choices)
    note = serializers.CharField(allow_blank=True)
    attempts = serializers.IntegerField()
    currentBytes = serializers.IntegerField()
    totalBytes = serializers.IntegerField()
    rate = serializers.FloatField(
        allow_null=True, help_text="Bytes a second; null: unknown, or nothing was heard for long."
    )
    etaSeconds = serializers.FloatField(allow_null=True)
    silentSeconds = serializers.FloatField(
        allow_null=True, help_text="How long nothing was heard of it; null while it is no news."
    )
    startedAt = serializers.DateTimeField(allow_null=True)
    finishedAt = serializers.DateTimeField(allow_null=True)
    nextAt = serializers.DateTimeField(allow_null=True)
    cancellable = serializers.BooleanField()
    position = serializers.IntegerField(allow_null=True)
    behind = serializers.CharField(allow_blank=True)
    change = serializers.IntegerField()


class OperationOut(serializers.Serializer):
    """LocalAI's operation, then what it does not tell."""

    id = serializers.CharField()
    name = serializers.CharField()
    fullName = serializers.CharField()
    jobID = serializers.CharField()
    progress = serializers.IntegerField()
    taskType = serializers.CharField()
    isDeletion = serializers.BooleanField()
    isBackend = serializers.BooleanField()
    isQueued = serializers.BooleanField()
    cancellable = serializers.BooleanField()
    message = serializers.CharField(allow_blank=True)
    nodeID = serializers.CharField(required=False)
    nodeName = serializers.CharField(required=False)
    phase = serializers.CharField(required=False)
    currentBytes = serializers.IntegerField(required=False)
    totalBytes = serializers.IntegerField(required=False)
    error = serializers.CharField(required=False)
    nodes = OpOut(many=True)
    state = serializers.ChoiceField(OperationState.choices)
    verb = serializers.ChoiceField(Verb.choices)
    requestedBy = serializers.CharField()
    requestedAt = serializers.DateTimeField()
    eta = serializers.DateTimeField(allow_null=True)
    counts = serializers.DictField(child=serializers.IntegerField())
    retryOf = serializers.CharField(allow_null=True)
    acknowledgedAt = serializers.DateTimeField(allow_null=True)


class RequestOut(serializers.Serializer):
    """Everything that is needed to ask it again."""

    backend = serializers.CharField()
    uri = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    alias = serializers.CharField(allow_blank=True)
    galleries = serializers.ListField(child=serializers.DictField())
    target = serializers.CharField()


class OperationDetailOut(OperationOut):
    request = RequestOut()
    reason = serializers.CharField(allow_blank=True)
    skipped = SkippedOut(many=True)
    acknowledgedBy = serializers.CharField(allow_blank=True)
    finishedAt = serializers.DateTimeField(allow_null=True)


class LiveOut(serializers.Serializer):
    operations = OperationOut(many=True)
    more = serializers.BooleanField(help_text="There are older ones that are not listed.")


class RecordOut(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    jobID = serializers.CharField()
    isBackend = serializers.BooleanField()
    nodeID = serializers.CharField(required=False)
    taskType = serializers.CharField()
    outcome = serializers.CharField()
    error = serializers.CharField(required=False)
    startedAt = serializers.DateTimeField(allow_null=True)
    finishedAt = serializers.DateTimeField(allow_null=True)
    state = serializers.ChoiceField(OperationState.choices)
    verb = serializers.ChoiceField(Verb.choices)
    requestedBy = serializers.CharField()
    requestedAt = serializers.DateTimeField()
    reason = serializers.CharField(allow_blank=True)
    target = serializers.CharField()
    nodes = serializers.IntegerField()
    failedNodes = serializers.IntegerField()
    acknowledgedBy = serializers.CharField(allow_blank=True)
    acknowledgedAt = serializers.DateTimeField(allow_null=True)


class HistoryOut(serializers.Serializer):
    operations = RecordOut(many=True)
    next = serializers.CharField(allow_null=True, help_text="`cursor` of the next page.")


class PreviewNodeOut(serializers.Serializer):
    node = serializers.CharField()
    name = serializers.CharField()
    what = serializers.ChoiceField(("starts", "joins", "replaces"))


class PreviewOut(serializers.Serializer):
    """What an order would do; nothing was written."""

    verb = serializers.ChoiceField(Verb.choices)
    backend = serializers.CharField()
    target = serializers.CharField()
    nodes = PreviewNodeOut(many=True)
    skipped = SkippedOut(many=True)


class CauseOut(serializers.Serializer):
    cause = serializers.CharField(allow_blank=True)
    count = serializers.IntegerField()
    firstAt = serializers.DateTimeField()
    lastAt = serializers.DateTimeField()
    backends = serializers.ListField(child=serializers.CharField())
    ops = serializers.ListField(child=serializers.IntegerField())


class DeadLettersOut(serializers.Serializer):
    causes = CauseOut(many=True)
    total = serializers.IntegerField()
