"""The reference backend: a small real gRPC backend for demonstrations and tests.

It speaks Health, LoadModel, Free, Status, Predict, PredictStream, Embedding and TokenizeString.
What it computes is real and always the same for the same input (language.py), and it misbehaves
on demand (knobs.py). As a gallery's folder it is `run.sh` next to a copy of this package.
"""
