"""Resolves a text, a path or the environment to a store URL.

A mistyped URL is refused instead of becoming a file of that name. The error does not repeat it: it may have a password.
"""

from __future__ import annotations

import os
import re
from typing import NoReturn

from perdure.errors import StoreTypeInvalid, StoreUnavailable, StoreUrlInvalid
from perdure.store.postgres.url import SCHEMES
from perdure.store.remote.address import SCHEMES as REMOTE_SCHEMES
from perdure.store.remote.address import parse_address

DATABASE_NAME = "perdure.db"
FOLDER_NAME = ".perdure"
VARIABLE = "PERDURE_URL"
MEMORY = ":memory:"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_PARAMETER = re.compile(r"\?[\w.-]+=|\.\w+#[^/.]*$")
"""`?mode=ro`, or the fragment of a URL behind a file extension. `c#/x.db` and `x#1.db` are file names."""
_CREDENTIALS = re.compile(r"[^/]+:[^/]*@")
_CONNINFO = re.compile(r"(?:host|hostaddr|port|dbname|user|password|service|sslmode)\s*=")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def locate(store: str | os.PathLike[str] | None) -> str:
    """Return the URL to open: `store`, else `PERDURE_URL`, else the nearest `.perdure/`, else the home folder's."""
    if store is not None:
        return _url_of(store)
    if said := os.environ.get(VARIABLE):
        try:
            return _url_of(said)
        except StoreUnavailable as error:
            raise type(error)(f"{VARIABLE}: {error.message}", hint=error.hint) from None
    folder, above = os.getcwd(), ""
    while folder != above:
        if os.path.isdir(found := os.path.join(folder, FOLDER_NAME)):
            _require_own_folder(found)
            return f"sqlite:///{os.path.join(found, DATABASE_NAME)}"
        above, folder = folder, os.path.dirname(folder)
    return f"sqlite:///{os.path.join(default_folder(), DATABASE_NAME)}"


def _require_own_folder(folder: str) -> None:
    """Refuse a folder that another user has planted, for example in /tmp, to read what is stored."""
    us, sudo = os.geteuid(), os.environ.get("SUDO_UID", "")
    owner = os.lstat(folder).st_uid
    if owner != us and not (us == 0 and sudo == str(owner)):
        raise StoreUnavailable(
            f"{folder} belongs to another user ({owner}), and no argument or variable named it; nothing was opened",
            hint=f"if you trust it, name it explicitly: store='{os.path.join(folder, DATABASE_NAME)}', or PERDURE_URL",
        )


def default_folder() -> str:
    """The folder of the default store, which Perdure creates."""
    return os.path.join(os.path.expanduser("~"), FOLDER_NAME)


def sqlite_path(url: str) -> str:
    """Return the absolute path of a `sqlite:///path` URL; a relative path starts at the working folder.

    The path is taken literally, without percent-decoding.
    """
    scheme, _, rest = url.partition("://")
    if scheme in ("http", "https"):
        _refuse(
            f"{url} is a server: this works on the machine of its store only, and nothing was done",
            "there: the same command, with the store that the server was started with",
        )
    if scheme != "sqlite":
        _refuse(f"{scheme}:// is not a kind of store that this version supports", _advice(scheme))
    if rest in (MEMORY, f"/{MEMORY}"):
        return MEMORY
    if not rest.startswith("/") or len(rest) < 2:
        _refuse(f"{url} does not name a file", "write sqlite:///path with three slashes")
    return os.path.abspath(os.path.expanduser(rest[1:]))


def file_of(url: str) -> str | None:
    """Return the file of a store; None for a store in memory or on a server."""
    if not is_embedded(url):
        return None
    path = sqlite_path(url)
    return None if path == MEMORY else path


def is_embedded(url: str) -> bool:
    """Whether a store is a file or in memory, not on a server."""
    return url.startswith("sqlite:")


# -- what is refused --------------------------------------------------------------------------------------------------


def _url_of(given: object) -> str:
    if isinstance(given, str):
        return _address_of_text(given)
    if isinstance(given, os.PathLike):
        path = os.fspath(given)
        if isinstance(path, str):
            return _address_of_path(path)
        given = path
    raise StoreTypeInvalid(f"store={type(given).__name__}: pass a str or a path")


def _address_of_path(path: str) -> str:
    """A path object names a file, unless it is a URL whose double slash `Path` has collapsed."""
    _refuse_unkept(path)
    if (scheme := _SCHEME.match(path)) and path[scheme.end() :].startswith("/"):
        _refuse_one_slash(scheme[1])
    return f"sqlite:///{path}"


def _address_of_text(text: str) -> str:
    _refuse_unkept(text)
    if not text.strip():
        _refuse("the store name is empty", "omit store= for the default store, or pass a file name")
    if text != text.strip() or _CONTROL.search(text):
        _refuse("the store name has surrounding white space or a control character", "strip() it")
    if "://" not in text:
        return _address_of_plain_path(text)
    scheme, _, rest = text.partition("://")
    if scheme == "sqlite":
        sqlite_path(text)
        _refuse_parameters(rest[1:])
        _refuse_folder(rest[1:])
    elif scheme in REMOTE_SCHEMES:
        parse_address(text)
    elif scheme.lower() in ("sqlite", "file", *REMOTE_SCHEMES, *SCHEMES) and scheme not in SCHEMES:
        _refuse(f"{scheme}:// is not a kind of store that this version supports", _advice(scheme))
    return text


def _address_of_plain_path(text: str) -> str:
    if text == MEMORY:
        return f"sqlite://{MEMORY}"
    if text.startswith(":"):
        _refuse(f"{text} does not name a file", f"write {MEMORY} for a store in memory, ./{text} for a file")
    if scheme := _SCHEME.match(text):
        if text[scheme.end() :].startswith("/"):
            _refuse_one_slash(scheme[1])
        _refuse(f"{scheme[1]}: without slashes is neither a URL nor a path", _advice(scheme[1]))
    if _DRIVE.match(text):
        _refuse(f"{text} is a Windows path; Perdure does not run on Windows", "pass a POSIX path")
    if _CREDENTIALS.match(text) or _CONNINFO.match(text):
        _refuse("the store name looks like a server address", "write postgresql://user@host/database")
    _refuse_parameters(text)
    _refuse_folder(text)
    return f"sqlite:///{text}"


def _refuse_unkept(text: str) -> None:
    if "\0" in text:
        _refuse("the store name contains a NUL character", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(f"{text!a} is not UTF-8; SQLite cannot open such a file", "rename the file or folder")


def _refuse_one_slash(scheme: str) -> NoReturn:
    _refuse(
        f"{scheme}:/ with one slash is neither a URL nor a path",
        f"write {scheme}:// with two slashes, and give it as text, not as a Path",
    )


def _refuse_parameters(text: str) -> None:
    """Refuse `x.db?mode=ro` and `x.db#part`, unless a file or a folder has that very name."""
    path = os.path.abspath(os.path.expanduser(text))
    folder = os.path.dirname(path)
    found = _PARAMETER.search(text)
    if found is None or os.path.exists(path) or ("?" in folder and os.path.isdir(folder)):
        return
    mark = "?" if "?" in found[0] else "#"
    _refuse(f"{text}: a file name takes no parameters", f"remove the {mark} and everything after it")


def _refuse_folder(text: str) -> None:
    if text.endswith("/"):
        _refuse(f"{text} is a folder; a store is a file", f"write {text}{DATABASE_NAME}")


def _advice(scheme: str) -> str:
    """Suggest the URL that was probably meant."""
    known = scheme.lower()
    if known in SCHEMES:
        return "write postgresql://user@host/database"
    if known in REMOTE_SCHEMES:
        return f"write {known}://host:8321 for a server that `perdure serve` runs"
    if known in ("sqlite", "file"):
        return "write sqlite:///path with three slashes, or the path alone"
    return f"use sqlite:///path or postgresql://...; a file of that name is ./{scheme}:..."


def _refuse(what: str, advice: str) -> NoReturn:
    raise StoreUrlInvalid(what, hint=advice)
