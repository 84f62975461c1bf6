"""Folders and files in object stores: fetched before they are read, sent when they are complete.

`fetch` makes the local copy (`bert.core.object_urls`) that of the store: of a folder with a manifest, each file is
checked against its hash; of other folders and of files, size and ETag tell whether they have changed. One process of a
machine fetches, the others wait for it. `send` sends a finished folder, its manifest last: without that it is not
complete, there as here.

Requests are made by obstore (docs/decisions/0032), which repeats them with growing pauses and sends large files in
parts.
"""

import configparser
import contextlib
import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from bert.core import files, manifest, object_urls
from bert.core.errors import InputError, IntegrityError, ResourceError, UsageError
from bert.core.progress import MB, Progress
from bert.core.workspace import Workspace

T = TypeVar("T")

PIECE = 8 << 20  # bytes of a request; a file of more is read and written in several
MOST_PARTS = 9000  # of an upload; S3 takes 10,000
AT_ONCE = 4  # files
PARTS_AT_ONCE = 2  # of a file that is sent
UNFINISHED = "unfinished.json"  # an object in a folder that is being sent: which manifest it will have
SINGLE = "object"  # name of a file in a work folder that is no folder in the store
SPARE = 64 << 20  # bytes that stay free on the disk
# What stores say of a wrong, missing or expired key.
REFUSED = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AuthenticationFailed"),
    *("status code: 401", "status code: 403", "Account must be specified", "token request", "fetching token"),
    *("169.254.169.254", "169.254.170.2", "metadata.google.internal"),  # which give machines their credentials
)
NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist", "container does not exist")
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials, or the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, gcloud auth application-default login, or the account of the machine",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, a service principal, or a managed identity",
}


class Unreachable(InputError):
    """A store that does not answer, after all attempts."""


class Stored(NamedTuple):
    """An object of a store."""

    size: int
    tag: str
    """changes with its content"""


class Place:
    """A folder in a store; names of objects are relative to it. Methods raise the errors that `_explained` makes."""

    def __init__(self, url: str) -> None:
        self.url = url
        scheme, _, rest = url.partition("://")
        bucket, _, self._key = rest.partition("/")
        with self._explained():
            self._store = _store(scheme, bucket)

    def walk(self) -> dict[str, Stored]:
        """Return all objects in the folder and below it. Raise InputError if one has no name that a file can have."""
        with self._explained():
            found = [each for some in _obstore().list(self._store, self._key) for each in some]
        return self._named(found)

    def children(self, below: str = "") -> tuple[dict[str, Stored], list[str]]:
        """Return the objects directly in the folder, or in one below it, and the names of the folders there."""
        prefix = f"{self._key}/{below}" if below else self._key
        with self._explained():
            found = _obstore().list_with_delimiter(self._store, prefix)
        folders = [name.rsplit("/", 1)[-1] for name in found["common_prefixes"]]
        return self._named(found["objects"], {f"{below}/{name}".lstrip("/") for name in folders}), folders

    def _named(self, found: Sequence[Mapping[str, Any]], folders: Collection[str] = ()) -> dict[str, Stored]:
        """Return objects by their names. folders: those that are known beside those in these names."""
        names = [each["path"].removeprefix(self._key).removeprefix("/") for each in found]
        within = {*folders, *(str(folder) for name in names for folder in PurePosixPath(name).parents)}
        named: dict[str, Stored] = {}
        for name, each in zip(names, found, strict=True):
            if not name or (each["size"] == 0 and (name in within or not self._is_there(name))):
                continue  # what consoles and tools make for a folder: an object `sub/`, which obstore lists as `sub`
            if name in within:
                raise InputError(
                    f"{self.url}/{name}: is an object, and others have names below it, which no folder can hold; "
                    "rename that object"
                )
            try:
                manifest.check_name(name)
            except ValueError as error:
                raise InputError(f"{self.url}: {error}; rename that object") from error
            named[name] = Stored(each["size"], each["e_tag"] or str(each["last_modified"]))
        return named

    def _is_there(self, name: str) -> bool:
        with self._explained(name), contextlib.suppress(FileNotFoundError):
            _obstore().head(self._store, self._path(name))
            return True
        return False

    def one(self) -> Stored | None:
        """Return the object that has the name of the folder, if there is one."""
        with self._explained(), contextlib.suppress(FileNotFoundError):
            found = _obstore().head(self._store, self._key)
            return Stored(found["size"], found["e_tag"] or str(found["last_modified"]))
        return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a small object, or None if there is none."""
        with self._explained(), contextlib.suppress(FileNotFoundError):
            return bytes(_obstore().get(self._store, self._path(name)).bytes())
        return None

    def get(self, name: str, size: int, target: Path, stopped: threading.Event) -> Iterator[int]:
        """Write an object to `target`, after what is there of it already; yield the bytes of each piece."""
        with open(target, "ab") as stream:
            done = stream.seek(0, os.SEEK_END)
            if done > size:
                stream.truncate(done := 0)
            while done < size and not stopped.is_set():
                with self._explained(name):
                    length = min(PIECE, size - done)
                    piece = _obstore().get_range(self._store, self._path(name), start=done, length=length)
                if len(piece) != length:
                    raise InputError(f"{self.url}/{name}: was changed while it was read; repeat the command")
                stream.write(piece)
                done += length
                yield length

    def put(self, name: str, content: bytes | Any, size: int) -> None:
        """Write an object: bytes, or what a file has that is open. It appears when it is complete."""
        with self._explained(name):
            part = max(PIECE, -(-size // MOST_PARTS))
            _obstore().put(self._store, self._path(name), content, chunk_size=part, max_concurrency=PARTS_AT_ONCE)

    def delete(self, names: Collection[str]) -> None:
        """Delete objects; those that are gone already do not matter."""
        for name in names:
            with self._explained(name), contextlib.suppress(FileNotFoundError):
                _obstore().delete(self._store, self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._key}/{name}" if name else self._key

    @contextlib.contextmanager
    def _explained(self, name: str = "") -> Iterator[None]:
        """Raise an error of a store as one of ours, in one line.

        UsageError for credentials, InputError for a bucket or an object that is not there, Unreachable for the rest.
        """
        try:
            yield
        except (_obstore().exceptions.BaseError, FileNotFoundError, PermissionError) as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise  # of a local file
            raise _explanation(f"{self.url}/{name}".rstrip("/"), str(error), error) from error


def _explanation(url: str, text: str, error: BaseException) -> InputError | UsageError:
    scheme, first = url.partition(":")[0], text.split("\n")[0]
    if any(words in text for words in NO_BUCKET):
        return InputError(f"{url}: there is no bucket {url.split('/')[2]!r}; make it, or correct the name")
    kinds = _obstore().exceptions
    if isinstance(error, FileNotFoundError | kinds.NotFoundError):
        return InputError(f"{url}: no such object; correct the name")
    if isinstance(error, kinds.InvalidPathError):
        return InputError(f"{url}: a name there is that of no file ({_short(first)}); rename that object")
    refused = isinstance(error, kinds.PermissionDeniedError | kinds.UnauthenticatedError | PermissionError)
    if refused or any(words in text for words in REFUSED):
        return UsageError(f"{url}: the store refuses the credentials, or there are none; give {CREDENTIALS[scheme]}")
    return Unreachable(f"{url}: no answer from the store ({_short(first)}); try later, or check the endpoint")


def _short(text: str) -> str:
    return text if len(text) < 300 else f"{text[:300]} ..."


@functools.cache
def _obstore() -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError as error:
        raise UsageError("s3://, gs:// and az:// need the package obstore; pip install obstore") from error
    return obstore


@functools.cache
def _store(scheme: str, bucket: str) -> Any:
    """Return a bucket, opened with what the environment says."""
    seconds = float(os.environ.get("BERT_STORE_SECONDS") or 180)
    options: dict[str, Any] = {"retry_config": {"retry_timeout": timedelta(seconds=seconds), "max_retries": 1000}}
    endpoints = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")
    plain = any(os.environ.get(name, "").startswith("http://") for name in endpoints)
    client = {"timeout": "120s", "connect_timeout": "10s"} | ({"allow_http": True} if plain else {})
    if scheme == "s3" and (config := _aws_profile()):
        options["config"] = config
    return _obstore().store.from_url(f"{scheme}://{bucket}", client_options=client, **options)


def _aws_profile() -> dict[str, str]:
    """Return keys and region of the profile in ~/.aws, which obstore does not read; the environment is first."""
    config, name = configparser.ConfigParser(interpolation=None), os.environ.get("AWS_PROFILE") or "default"
    shared = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws/credentials"
    general = os.environ.get("AWS_CONFIG_FILE") or Path.home() / ".aws/config"
    try:
        config.read([general, shared], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{shared}: not a file of credentials ({' '.join(str(error).split())})") from error
    values: dict[str, str] = {}
    for section in (f"profile {name}", name):
        values |= dict(config[section]) if config.has_section(section) else {}
    wanted = [] if any(map(os.environ.get, ("AWS_REGION", "AWS_DEFAULT_REGION"))) else ["region"]
    if not any(map(os.environ.get, ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"))):
        wanted += ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"]
    return {key: values[key] for key in wanted if key in values}


def url_of_copy(path: Path) -> str:
    """Return the URL whose copy has this path: `bert.core.stores` asks of no other."""
    url = object_urls.url_of(path)
    assert url is not None, f"{path}: not the copy of a URL"
    return url


def read(url: str, name: str) -> bytes | None:
    """Return the content of a small object of the folder of a URL, or None if there is none."""
    return Place(url).read(name)


def fetch(path: Path) -> None:
    """Make `path` the present content of its URL; one process of a machine does it.

    Raise what `Place` raises, InputError if there is nothing, IntegrityError if a file is not as its manifest says,
    ResourceError if the disk has too little room.
    """
    place, space = Place(url_of_copy(path)), Workspace(path)
    with files.room(space.output), space.locked():
        described = place.read(manifest.NAME)
        if described is not None and sum(word in described for word in manifest.WORDS) >= 2:
            _fetch_finished(place, space, described)
        else:
            _fetch_raw(place, space)


def fetch_finished(place: Place, path: Path, described: bytes) -> None:
    """Make `path` the folder in a store that has this manifest. Raise as `fetch` does."""
    space = Workspace(path)
    with files.room(space.output), space.locked():
        _fetch_finished(place, space, described)


def _fetch_finished(place: Place, space: Workspace, described: bytes) -> None:
    if (space.output / manifest.NAME).is_file() and (space.output / manifest.NAME).read_bytes() == described:
        with contextlib.suppress(InputError, IntegrityError):  # then it is fetched again
            manifest.load(space.output)
            return
    with space.work(hashlib.sha256(described).hexdigest()[:12]) as work:
        listed = read_manifest(place.url, described, work.private).files
        wanted = {name: Stored(entry.bytes, entry.sha256) for name, entry in listed.items()}
        get_all(place, wanted, work.output, work.private, {name: entry.sha256 for name, entry in listed.items()})
        (work.output / manifest.NAME).write_bytes(described)
        space.publish(work.output)
    space.clear()


def read_manifest(url: str, content: bytes, folder: Path) -> manifest.Manifest:
    """Return the manifest that a store has. Raise IntegrityError if it is damaged. folder: to hold it meanwhile."""
    (folder / manifest.NAME).write_bytes(content)
    try:
        return manifest.read(folder)
    except IntegrityError as error:
        raise IntegrityError(f"{url}/{manifest.NAME}: damaged; send the folder again") from error


def _fetch_raw(place: Place, space: Workspace) -> None:
    """Fetch a folder that no stage made, or a single object."""
    found = _found(place)
    if UNFINISHED in found:
        raise InputError(f"{place.url}: is being sent, or that was stopped; repeat the command that sends it")
    if not found:
        raise InputError(f"{place.url}: nothing has this name, and no name begins with it; correct it")
    tags = json.dumps(found, sort_keys=True)
    marker = space.output.with_name(f".{space.output.name}.fetched.inputs")  # a name that is no part of a folder
    before = marker.read_text(encoding="utf-8") if marker.is_file() else "{}"
    if space.output.exists() and before == tags:
        return
    _check_only_fetched(space.output, {*json.loads(before), *found})
    with space.work(hashlib.sha256(tags.encode()).hexdigest()[:12]) as work:
        get_all(place, found, work.output, work.private, {})
        if _found(place) != found:
            raise InputError(f"{place.url}: was changed while it was read; repeat the command")
        marker.unlink(missing_ok=True)
        space.publish(work.output / SINGLE if "" in found else work.output)
        marker.write_text(tags, encoding="utf-8")
    space.clear()


def _check_only_fetched(folder: Path, fetched: Collection[str]) -> None:
    """Raise UsageError if a folder that is to be fetched anew has copies of other folders in it, as of a run."""
    inside = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    if others := [path for path in inside if str(path.relative_to(folder)) not in fetched]:
        raise UsageError(f"{others[0]}: is not of the present content of {folder}; move it away, or remove {folder}")


def _found(place: Place) -> dict[str, Stored]:
    """Return the objects in a folder; without any, the object of that name, as ""."""
    found = place.walk()
    if not found and (one := place.one()):
        return {"": one}
    return found


def get_all(place: Place, wanted: Mapping[str, Stored], target: Path, private: Path, hashes: Mapping[str, str]) -> None:
    """Write objects to the folder `target`; what an earlier, stopped call wrote is kept. hashes: SHA-256 to check.

    private: a folder for unfinished files. Raise as `fetch` does.
    """
    missing = {name: each for name, each in wanted.items() if not (target / (name or SINGLE)).is_file()}
    need, free = sum(each.size for each in missing.values()), files.free_bytes(target)
    need -= sum(each.stat().st_size for each in private.glob("*.part"))
    if need + SPARE > free:
        raise ResourceError(
            f"{target.parent}: {place.url} needs {need + SPARE:,} bytes, and {free:,} are free; make room: what is in "
            f"{object_urls.local(place.url).parent} and not in use may be removed"
        )
    stopped = threading.Event()
    with Progress(f"fetch {place.url}", MB, sum(each.size for each in missing.values())) as progress:

        def one(name: str, stored: Stored) -> None:
            part = private / f"{hashlib.sha256(f'{name} {stored.tag}'.encode()).hexdigest()[:32]}.part"
            for size in place.get(name, stored.size, part, stopped):
                progress.add(size)
            if stopped.is_set():
                return
            if name in hashes and files.sha256(part) != hashes[name]:
                part.unlink()
                raise IntegrityError(f"{place.url}/{name}: not the file that its manifest records; send it again")
            final = target / (name or SINGLE)
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(part, final)

        each_of([functools.partial(one, name, stored) for name, stored in sorted(missing.items())], stopped)


def each_of(calls: Sequence[Callable[[], None]], stopped: threading.Event) -> None:
    """Make calls in several threads. If one fails, or a signal ends the wait, set `stopped`, and make no more."""
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="objects")
    try:
        done, _ = wait([pool.submit(call) for call in calls], return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def check_output(path: Path, stage: str) -> None:
    """Raise UsageError if the URL that `path` is the copy of holds something that this stage did not make."""
    url = url_of_copy(path)
    place = Place(url)
    found, folders = place.children()
    if manifest.NAME in found:
        try:
            made_by = json.loads(place.read(manifest.NAME) or b"")["stage"]
        except (ValueError, KeyError, TypeError):
            made_by = "another program"
        if made_by != stage:
            raise UsageError(f"{url}: holds the output of {made_by!r}; choose another output folder")
    elif UNFINISHED not in found and (found or folders or place.one()):
        raise UsageError(f"{url}: not empty and not made by this program; choose another output folder")


def send(path: Path) -> None:
    """Send the finished folder `path` to its URL.

    What a stopped call has sent is not sent again. While it is sent, the URL has no manifest, so it is complete or
    refused. Raise what `Place` raises.
    """
    url = url_of_copy(path)
    place, described = Place(url), (path / manifest.NAME).read_bytes()
    if place.read(manifest.NAME) == described:
        return
    mark = json.dumps({"manifest": hashlib.sha256(described).hexdigest()}).encode()
    there = place.walk()
    if place.read(UNFINISHED) != mark:
        place.put(UNFINISHED, mark, len(mark))
        place.delete([manifest.NAME])
        place.delete(there.keys() - {UNFINISHED, manifest.NAME})
        there = {}
    listed = manifest.read(path).files
    sent = {name for name, entry in listed.items() if name in there and there[name].size == entry.bytes}
    todo = {name: entry.bytes for name, entry in listed.items() if name not in sent}
    stopped = threading.Event()
    with Progress(f"send {url}", MB, sum(todo.values())) as progress:

        def one(name: str, size: int) -> None:
            if not stopped.is_set():
                with open(path / name, "rb") as stream:
                    place.put(name, stream, size)
                progress.add(size)

        each_of([functools.partial(one, name, size) for name, size in sorted(todo.items())], stopped)
    place.put(manifest.NAME, described, len(described))
    place.delete([UNFINISHED])
