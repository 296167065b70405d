"""Text from outside: bounded, storable, and unable to forge what an operator reads."""

import re
from uuid import UUID

from clustermgr.lib.errors import InvalidInput

# Control characters break log lines and PostgreSQL refuses NUL; line separators and
# direction overrides let one name be read as another.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

CUT = " ... "


def checked(text: str, *, field: str, limit: int) -> str:
    """Return `text` as it came, or refuse with a sentence that names `field`; `limit` in bytes."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text  # nearly all there is, at a tenth of the price
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:  # JSON may carry half of a surrogate pair
        raise InvalidInput(f"{field} is not valid Unicode.") from error
    if size > limit:
        raise InvalidInput(f"{field} is {size} bytes long; at most {limit} are allowed.")
    if UNSAFE.search(text):
        raise InvalidInput(f"{field} contains control characters.")
    return text


def uuid_in(text: str) -> UUID | None:
    """The id that `text` spells; None when it spells none."""
    try:
        return UUID(text)
    except ValueError:
        return None


def reason(text: str) -> str:
    """An operator's reason on one line, short enough for its column."""
    return checked(" ".join(text.split()), field="The reason", limit=255)


def sentence(text: str, *, limit: int) -> str:
    """Somebody's words on one line: of a traceback, what failed and its last line."""
    lines = [line for line in readable(text, limit=len(text)).split("\n") if line]
    if len(lines) < 2:
        return readable(text, limit=limit)
    told = [line for line in lines[1:] if not line.startswith((" ", "\t"))] or lines[1:]
    return readable(f"{lines[0].rstrip(':')}: {told[-1].strip()}", limit=limit)


def readable(text: str, *, limit: int) -> str:
    """Somebody's words for people to read, of at most `limit` characters.

    The middle goes first: the head says what failed, the tail is the end of its output. Lines
    stay lines; what could forge or break them becomes a space.
    """
    clean = "\n".join(UNSAFE.sub(" ", line).rstrip() for line in text.split("\n")).strip()
    clean = clean.encode(errors="replace").decode()
    if len(clean) <= limit:
        return clean
    tail = (limit - len(CUT)) // 2
    return clean[: limit - len(CUT) - tail] + CUT + clean[len(clean) - tail :]
