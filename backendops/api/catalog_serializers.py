"""Shapes of the catalog and of what is installed."""

from rest_framework import serializers

from backendops.api.serializers import SkippedOut


class InstalledOut(serializers.Serializer):
    """An element of a worker's own answer."""

    name = serializers.CharField()
    is_system = serializers.BooleanField()
    is_meta = serializers.BooleanField()
    installed_at = serializers.CharField(required=False)
    gallery_url = serializers.CharField(required=False)
    version = serializers.CharField(required=False)
    uri = serializers.CharField(required=False)
    digest = serializers.CharField(required=False)


class BackendNodeOut(serializers.Serializer):
    node_id = serializers.CharField()
    node_name = serializers.CharField()
    node_status = serializers.CharField()
    version = serializers.CharField(allow_blank=True)
    digest = serializers.CharField(allow_blank=True)
    observed_at = serializers.DateTimeField()


class NodeReferenceOut(serializers.Serializer):
    node_id = serializers.CharField()
    node_name = serializers.CharField()
    node_status = serializers.CharField()
    version = serializers.CharField(required=False)
    digest = serializers.CharField(required=False)
    uri = serializers.CharField(required=False)
    installed_at = serializers.CharField(required=False)


class MetadataOut(serializers.Serializer):
    name = serializers.CharField()
    installed_at = serializers.CharField(required=False)
    gallery_url = serializers.CharField(required=False)
    version = serializers.CharField(required=False)
    uri = serializers.CharField(required=False)
    digest = serializers.CharField(required=False)


class SystemBackendOut(serializers.Serializer):
    """What LocalAI tells of an installed backend."""

    Name = serializers.CharField()
    RunFile = serializers.CharField(allow_blank=True)
    IsMeta = serializers.BooleanField()
    IsSystem = serializers.BooleanField()
    Metadata = MetadataOut()
    nodes = NodeReferenceOut(many=True)
    upgrade_available = serializers.BooleanField(required=False)
    available_version = serializers.CharField(required=False, allow_blank=True)


class KnownOut(serializers.Serializer):
    name = serializers.CharField()
    modality = serializers.CharField(allow_blank=True)
    auto_detect = serializers.BooleanField()
    description = serializers.CharField(required=False)
    installed = serializers.BooleanField()


class CatalogEntryOut(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    icon = serializers.CharField(allow_blank=True)
    license = serializers.CharField(allow_blank=True)
    urls = serializers.ListField(child=serializers.CharField())
    tags = serializers.ListField(child=serializers.CharField())
    gallery = serializers.CharField()
    installed = serializers.BooleanField()
    version = serializers.CharField(allow_blank=True)
    processing = serializers.BooleanField()
    jobID = serializers.CharField(allow_blank=True)
    isDeletion = serializers.BooleanField()
    isMeta = serializers.BooleanField()
    isAlias = serializers.BooleanField()
    isDevelopment = serializers.BooleanField()
    capabilities = serializers.DictField(child=serializers.CharField(allow_blank=True))
    metaBackendFor = serializers.CharField(allow_blank=True)
    nodes = BackendNodeOut(many=True)


class GalleryOut(serializers.Serializer):
    name = serializers.CharField()
    url = serializers.CharField()


class AvailableOut(serializers.Serializer):
    """A gallery's entry; what is empty is left out."""

    name = serializers.CharField()
    description = serializers.CharField(required=False)
    license = serializers.CharField(required=False)
    urls = serializers.ListField(child=serializers.CharField(), required=False)
    icon = serializers.CharField(required=False)
    tags = serializers.ListField(child=serializers.CharField(), required=False)
    version = serializers.CharField(required=False)
    alias = serializers.CharField(required=False)
    uri = serializers.CharField(required=False)
    capabilities = serializers.DictField(
        child=serializers.CharField(allow_blank=True), required=False
    )
    gallery = GalleryOut()
    installed = serializers.BooleanField(required=False)


class CheckedGalleryOut(GalleryOut):
    checked_at = serializers.DateTimeField(allow_null=True)
    error = serializers.CharField(allow_blank=True)


class CatalogOut(serializers.Serializer):
    """LocalAI's page of backends; `repositories` also tells when each was last read."""

    backends = CatalogEntryOut(many=True)
    repositories = CheckedGalleryOut(many=True)
    allTags = serializers.ListField(child=serializers.CharField())
    processingBackends = serializers.DictField(child=serializers.CharField())
    taskTypes = serializers.DictField(child=serializers.CharField())
    availableBackends = serializers.IntegerField()
    installedBackends = serializers.IntegerField()
    currentPage = serializers.IntegerField()
    totalPages = serializers.IntegerField()
    prevPage = serializers.IntegerField()
    nextPage = serializers.IntegerField()
    systemCapability = serializers.CharField(allow_blank=True)
    preferDevelopmentBackends = serializers.BooleanField()


class UpgradeTargetOut(serializers.Serializer):
    node = serializers.CharField()
    name = serializers.CharField()


class UpgradeStepOut(serializers.Serializer):
    backend = serializers.CharField()
    available_version = serializers.CharField(allow_blank=True)
    nodes = UpgradeTargetOut(many=True)
    skipped = SkippedOut(many=True)
    jobID = serializers.CharField(allow_null=True)
    error = serializers.CharField(allow_blank=True)


class UpgradeAllOut(serializers.Serializer):
    upgrades = UpgradeStepOut(many=True)
    dry_run = serializers.BooleanField()


class AppliedOut(serializers.Serializer):
    """LocalAI's answer on /backends/*: the job under each name its clients know it by."""

    ID = serializers.CharField()
    StatusURL = serializers.CharField()
    uuid = serializers.CharField()
    status_url = serializers.CharField()
