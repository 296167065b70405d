"""How processes are named: `<model or backend>#<replica>`."""


def split(key: str) -> tuple[str, int] | None:
    """The model and the replica, split at the *last* #; None for what is no key."""
    model, _, index = key.rpartition("#")
    if not model or not (index.isascii() and index.isdigit() and len(index) <= 10):
        return None
    return model, int(index)
