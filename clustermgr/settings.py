"""Django settings: one file, environment only, safe when nothing is set."""

import os
from pathlib import Path

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from kombu import Queue

from clustermgr.beat import beat_schedule, task_routes
from clustermgr.conf import ClusterSettings, env_text, parse_bool
from clustermgr.logs import logging_config
from clustermgr.navigation import unfold_settings

BASE_DIR = Path(__file__).resolve().parent.parent

CLUSTER = ClusterSettings.from_env(os.environ)
DEBUG = parse_bool("DJANGO_DEBUG", os.environ.get("DJANGO_DEBUG", "false"))


def _required(name: str, why: str) -> str:
    value = env_text(os.environ, name)
    if not value:
        raise ImproperlyConfigured(f"{name} is not set: {why}. `make run` sets it for you.")
    return value


SECRET_KEY = _required("DJANGO_SECRET_KEY", "sessions and CSRF tokens are signed with it")
ALLOWED_HOSTS = _required(
    "DJANGO_ALLOWED_HOSTS", "a comma-separated list of the names people reach us by"
).split(",")
CSRF_TRUSTED_ORIGINS = [
    origin for origin in os.environ.get("DJANGO_CSRF_TRUSTED_ORIGINS", "").split(",") if origin
]

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "clustermgr.apps.ClusterAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "clustermgr.apps.ClusterConfig",
    "django.contrib.postgres",
    "nodes",
    "backendops",
    "scheduling",
]

MIDDLEWARE = [
    "clustermgr.middleware.RequestIdMiddleware",
    "clustermgr.middleware.MetricsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "clustermgr.middleware.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "clustermgr.urls"
ASGI_APPLICATION = "clustermgr.asgi.application"
WSGI_APPLICATION = "clustermgr.wsgi.application"
# Workers refuse every redirect, a missing slash included.
APPEND_SLASH = False

LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# --- Database -----------------------------------------------------------------------------

DATABASE_URL = _required("DATABASE_URL", "PostgreSQL is the only truth")
_database = dj_database_url.parse(DATABASE_URL)
DATABASES = {
    "default": {
        **_database,
        # Pooled connections are checked when taken, so a restarted PostgreSQL costs no request.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "pool": {"min_size": 0, "max_size": 20, "timeout": 5},
            "connect_timeout": 3,
            # A dead database host must show within seconds, not after TCP's two hours.
            "keepalives_idle": 10,
            "keepalives_interval": 3,
            "keepalives_count": 3,
            # What the URL says comes last: sslmode and its certificates above all
            **_database.get("OPTIONS", {}),
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Security -----------------------------------------------------------------------------

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = CLUSTER.https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if CLUSTER.https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = CLUSTER.https
SECURE_SSL_REDIRECT = CLUSTER.https
# Machines do not follow redirects: workers treat any 3xx as a broken server.
SECURE_REDIRECT_EXEMPT = [r"^api/", r"^backends/", r"^healthz$", r"^readyz$", r"^metrics$"]
X_FRAME_OPTIONS = "DENY"
# 10 MB bodies are refused before they are parsed; a register body is under 4 kB.
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024

# --- Static files and language ------------------------------------------------------------

STATIC_URL = "static/"
# Served from the packages themselves: no collectstatic between `git clone` and the first page.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
WHITENOISE_MAX_AGE = 3600
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = ["clustermgr.formats"]

# --- API ----------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "clustermgr.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["clustermgr.lib.bodies.JsonBody"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "clustermgr.lib.api.Pages",
    "EXCEPTION_HANDLER": "clustermgr.lib.api.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "clustermgr",
    "DESCRIPTION": "Manage a fleet of inference workers.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    # What a fleet can be told to do is nobody's business but its operators'.
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "PREPROCESSING_HOOKS": ["clustermgr.schema.without_trailing_slash"],
    "ENUM_NAME_OVERRIDES": {
        "NodeTypeEnum": "nodes.states.NodeType",
        "OperationStateEnum": "backendops.states.OperationState",
        "OpStateEnum": "backendops.states.OpState",
        "JobStateEnum": "scheduling.states.JobState",
        "ReplicaStateEnum": "nodes.states.ReplicaState",
    },
    "APPEND_COMPONENTS": {
        "securitySchemes": {"registrationToken": {"type": "http", "scheme": "bearer"}}
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
}

# --- Celery -------------------------------------------------------------------------------

CELERY_BROKER_URL = _required("CELERY_BROKER_URL", "Celery rings its doorbells there")
CELERY_TASK_DEFAULT_QUEUE = "ticks"
# Never declared in passing: with pgmq each process would rebuild the queue's trigger with its first
# message, and two of them at once lock each other out. `manage.py prepare` declares them.
CELERY_TASK_QUEUES = [
    Queue(name, exchange="", routing_key=name, no_declare=CELERY_BROKER_URL.startswith("pgmq://"))
    for name in ("ticks", "nodeops")
]
CELERY_TASK_ROUTES = task_routes()
CELERY_BEAT_SCHEDULE = beat_schedule(CLUSTER)
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
# Early acks: the lease of a long piece of work is a row, beat rings again for an expired one.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# pgmq cannot carry remote control; nothing of ours needs it.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_TIMEOUT = 3
# A request must not hang on a dead broker: one try, the row is safe, the next tick repairs.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "clustermgr.scheduler:StaticScheduler"
if CELERY_BROKER_URL.startswith("pgmq://"):
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "init_extension": False,  # installed once by `manage.py prepare`
        # Said again: without it the client prefers DATABASE_URL to the URL it was given.
        "conn_string": CELERY_BROKER_URL.replace("pgmq://", "postgresql://", 1),
        "use_notify": True,
        "wait_time_seconds": 0,  # NOTIFY wakes us; long polling would keep a backend spinning
        "polling_interval": 1.0,
        "notify_throttle_interval_ms": 0,
        "pool_size": 4,
        "pool_timeout": 3,
    }

LOGGING_CONFIG = "logging.config.dictConfig"
LOGGING = logging_config(CLUSTER)
UNFOLD = unfold_settings()
