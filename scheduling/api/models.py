"""Models: what they are, over HTTP."""

from dataclasses import asdict

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from clustermgr.lib.api import paged_array
from nodes.api.base import IF_MATCH, PAGING, OperatorView, findable, operator_schema, truth
from scheduling import importing
from scheduling.api.serializers import (
    DeletedOut,
    ImportedOut,
    ImportIn,
    ModelEditIn,
    ModelIn,
    ModelOut,
)
from scheduling.api.shapes import Json, model_json
from scheduling.definitions import Definition, keys_of
from scheduling.models import ModelLoadInfo
from scheduling.services import defining, rolling, standing
from scheduling.states import Cutover

VIEW = "scheduling.view_modelloadinfo"
ADD = "scheduling.add_modelloadinfo"
EDIT = "scheduling.change_modelloadinfo"
DELETE = "scheduling.delete_modelloadinfo"
SEARCH = OpenApiParameter("q", str, description="Part of a name.")
FORCE = OpenApiParameter("force", bool, description="Also its rule, and unload its replicas.")


class ModelsView(OperatorView):
    needs = {"GET": VIEW, "POST": ADD}

    @operator_schema(
        "listModels",
        "Every model, with where it stands",
        ModelOut(many=True),
        parameters=[*PAGING, SEARCH],
    )
    def get(self, request: Request) -> Response:
        part = findable("q", request.query_params.get("q", ""))
        rows = ModelLoadInfo.objects.filter(model_name__icontains=part)
        return paged_array(request, rows, _shown)

    @operator_schema("createModel", "Define a model", ModelOut, code=201, body=ModelIn)
    def post(self, request: Request) -> Response:
        definition = Definition.of(request.data)
        return _answer(defining.create(definition, by=self.actor, now=timezone.now()), status=201)


class ImportView(OperatorView):
    needs = {"POST": (ADD, EDIT)}

    @operator_schema("importModels", "Define or edit many, or none", ImportedOut, body=ImportIn)
    def post(self, request: Request) -> Response:
        documents = importing.documents(self.valid(ImportIn))
        return Response(asdict(defining.import_all(documents, by=self.actor, now=timezone.now())))


class ModelView(OperatorView):
    needs = {"GET": VIEW, "PUT": EDIT, "PATCH": EDIT, "DELETE": DELETE}

    @operator_schema("getModel", "One model", ModelOut)
    def get(self, request: Request, name: str) -> Response:
        return _answer(defining.find(name))

    @operator_schema(
        "replaceModel", "Make a model be this", ModelOut, body=ModelEditIn, parameters=[IF_MATCH]
    )
    def put(self, request: Request, name: str) -> Response:
        """Replicas of another revision stop serving at once; `outdated` says how many.

        With `"cutover": "rolling"` each serves until a new one stands in for it.
        """
        cutover, rest = rolling.split(request.data)
        return self._edit(Definition.of({"name": name, **keys_of(rest)}), name, cutover)

    @operator_schema(
        "changeModel",
        "Change what is said of a model",
        ModelOut,
        body=ModelEditIn,
        parameters=[IF_MATCH],
    )
    def patch(self, request: Request, name: str) -> Response:
        """What is left out stays; `options` are replaced as a whole. `cutover` as in PUT."""
        cutover, rest = rolling.split(request.data)
        before = defining.definition_of(defining.find(name))
        return self._edit(before.changed(rest), name, cutover)

    @operator_schema("deleteModel", "Forget a model", DeletedOut, parameters=[IF_MATCH, FORCE])
    def delete(self, request: Request, name: str) -> Response:
        count = defining.delete(
            name,
            by=self.actor,
            now=timezone.now(),
            force=truth("force", request.query_params.get("force", "false")),
            expected_version=self.expected_version(),
        )
        return Response({"message": "model deleted", "unloading": count})

    def _edit(self, wanted: Definition, name: str, cutover: Cutover | None) -> Response:
        edited = defining.edit(
            name,
            wanted,
            by=self.actor,
            now=timezone.now(),
            expected_version=self.expected_version(),
            cutover=cutover,
        )
        return _answer(edited.model)


def _shown(models: list[ModelLoadInfo]) -> list[Json]:
    found = standing.of(model.model_name for model in models)
    return [model_json(model, one) for model, one in zip(models, found, strict=True)]


def _answer(model: ModelLoadInfo, *, status: int = 200) -> Response:
    headers = {"ETag": f'"{model.version}"'}
    return Response(_shown([model])[0], status=status, headers=headers)
