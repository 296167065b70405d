"""What a backend process is asked over gRPC. Imports nothing else of ours: both sides use it."""
