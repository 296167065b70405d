#!/bin/sh
# The worker exports the Python it runs on, which has grpcio; alone, any python3 with grpcio will do.
cd "$(dirname "$0")" || exit 1
export PYTHONPATH="$PWD" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec "${WORKER_PYTHON:-python3}" -m worker.reference "$@"
