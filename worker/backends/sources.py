"""What an address of a backend means: a path of this machine or an http(s) URL."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from yarl import URL

from worker.machine import Refused

Address = Path | URL
OCI_SCHEMES = ("oci", "ocifile", "docker")


def locate(uri: str, *, base: Address | None = None) -> Address:
    """Resolve `uri`, relative ones against the index that names them."""
    scheme = urlsplit(uri).scheme if "://" in uri else ""
    if scheme in OCI_SCHEMES or (not scheme and _looks_like_image(uri)):
        raise Refused(
            f"{uri} is an OCI image; this worker installs directories, tar archives and "
            "http(s) addresses of tar archives"
        )
    if scheme in ("http", "https"):
        return _url(uri)
    if scheme not in ("", "file"):
        raise Refused(f"cannot fetch {uri}: {scheme}:// is not a known kind of address")
    path = unquote(urlsplit(uri).path) if scheme else uri
    if "\0" in path:
        raise Refused("an address may not contain a NUL character")
    if isinstance(base, URL):
        if scheme or path.startswith("/"):
            raise Refused(f"{uri} is a file of this machine; {base} may not name it")
        return _joined(base, path)
    return _local(Path(path), base)


def _looks_like_image(uri: str) -> bool:
    """registry.example/name:tag or name@sha256:...; a file next to the index has neither."""
    host, _, rest = uri.partition("/")
    tagged = ":" in rest.rpartition("/")[2] or "@sha256:" in rest
    return tagged and not uri.startswith((".", "/")) and ("." in host or ":" in host)


def _url(uri: str) -> URL:
    try:
        url = URL(uri)
    except ValueError as error:
        raise Refused(f"{uri} is not a valid address: {error}") from error
    if not url.host:
        raise Refused(f"{uri} names no host")
    return url


def _joined(base: URL, path: str) -> URL:
    try:
        return base.join(URL(path))
    except ValueError as error:
        raise Refused(f"{path} is not a valid address: {error}") from error


def _local(path: Path, base: Path | None) -> Path:
    if path.is_absolute():
        return path
    if base is None:
        raise Refused(f"{path} is neither an absolute path nor an address")
    return base.parent / path
