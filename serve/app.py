"""The service as an ASGI application: addresses, limits, and the way of a request through the queue."""

import asyncio
import contextlib
import functools
import json
import logging
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve import description, heads
from serve.batching import Expired, Job, Queue, QueueFull, Worker
from serve.heads import Head, Prepared
from serve.items import RequestError, parse_request
from serve.metrics import Metrics
from serve.models import Models, Served

PAGE = Path(__file__).parent / "page"
FILES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css"}
MOST_INPUTS = 256  # in one request
SHOWN = 200  # characters of an error of the model in an answer
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")  # as the log names them
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]@/]+)(:\d+)?", re.ASCII | re.IGNORECASE)  # with or without a port
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Refused(Exception):
    """A request that gets an error, with its status."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request may take, and all of them together."""

    body: int
    """bytes of a request's body"""
    answer: int
    """bytes of an answer"""
    windows: int
    """rows of one input"""
    queue: int
    """rows that may wait"""
    receive_seconds: float
    """time to receive a body"""
    answer_seconds: float
    """time until an answer"""


class Service:
    """Answers requests with the models. It works between the start and the end of the application's lifespan."""

    def __init__(self, models: Models, limits: Limits, *, batch: int, delay: float, watch: float, log: bool) -> None:
        """batch: maximum rows of a batch. delay: seconds that a row may wait for others.

        watch: seconds between looks at the run directories, 0 for none. log: whether requests are logged.
        """
        self.models, self.limits, self.watch, self.log = models, limits, watch, log
        self.queue = Queue(limits.queue)
        self.metrics = Metrics(lambda: len(self.queue))
        self.worker = Worker(self.queue, batch, delay, self.metrics.batch)
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="text")  # encode texts, and make answers of results
        self.stopping = False
        self._asked = asyncio.Event()  # to load all models again

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the worker; reload changed models."""
        self.worker.start()
        tasks = [asyncio.create_task(self._reload_when_asked())]
        tasks += [asyncio.create_task(self._watch())] if self.watch else []
        try:
            yield
        finally:
            self.stopping = True
            for task in tasks:
                task.cancel()
            self.queue.close()
            await asyncio.to_thread(self.worker.join, self.limits.answer_seconds)
            self.threads.shutdown(wait=False, cancel_futures=True)

    def ask_to_reload(self) -> None:
        """Ask to load all models again, after the present loading. Several calls before that load them once."""
        self._asked.set()

    async def _reload_when_asked(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._try_to_reload(force=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.watch)
            await self._try_to_reload()

    async def _try_to_reload(self, force: bool = False) -> None:
        try:
            await self.reload(force)
        except Exception as error:  # whatever it is, the next look may succeed
            log({"event": "error", "message": f"the run directories cannot be read: {error}"})

    async def reload(self, force: bool = False) -> list[str]:
        """Load changed models again; return their names."""
        failures = self.models.failures
        changed = await asyncio.to_thread(self.models.reload, force, lambda: self.stopping)
        self.metrics.reloads.labels("loaded").inc(len(changed))
        self.metrics.reloads.labels("failed").inc(self.models.failures - failures)
        if changed and self.log:
            log({"event": "loaded again", "models": changed})
        return changed

    async def ask(self, request: Request, route: str) -> Response:
        """Answer a request of one kind."""
        begun = time.monotonic()
        if _is_crowded(request):
            raise Refused(503, "too many connections; try again later", self.worker.retry_after())
        fields = _parsed(await self._body(request))
        name, inputs = fields.pop("model", None), fields.pop("inputs", None)
        several = inputs is not None
        if several and (not isinstance(inputs, list) or fields):
            raise Refused(400, "inputs is no list, or other fields stand beside it; see /docs for what to send")
        items = inputs if several else [fields]
        if not 0 < len(items) <= MOST_INPUTS:
            raise Refused(400, f"{len(items)} inputs; send 1 to {MOST_INPUTS}")
        model = self._model(name, route)
        head = model.heads[route]
        loop = asyncio.get_running_loop()
        deadline, left = begun + self.limits.answer_seconds, threading.Event()
        gone = asyncio.create_task(_disconnected(request))
        gone.add_done_callback(lambda _: left.set())
        try:
            prepared = await loop.run_in_executor(self.threads, self._prepared, head, items, deadline, left)
            if not several and isinstance(prepared[0], Refused):
                raise prepared[0]
            jobs = [None if isinstance(p, Refused) else _job(p, head, deadline) for p in prepared]
            await self._compute(gone, [job for job in jobs if job])
            rows = sum(len(job.rows) for job in jobs if job)
            if any(isinstance(one, Prepared) and one.then for one in prepared):
                more = await loop.run_in_executor(self.threads, self._continued, prepared, jobs, deadline, left)
                if not several and isinstance(more[0], Refused):
                    raise more[0]
                later = [_job(one, head, deadline) if isinstance(one, Prepared) else None for one in more]
                await self._compute(gone, [job for job in later if job])
                rows += sum(len(job.rows) for job in later if job)
                prepared = [one or earlier for one, earlier in zip(more, prepared, strict=True)]
                jobs = [job or earlier for job, earlier in zip(later, jobs, strict=True)]
        finally:
            gone.cancel()
        answer = await loop.run_in_executor(self.threads, self._answer, model.name, prepared, jobs, several)
        request.state.rows = rows
        return Response(answer, media_type="application/json")

    def _model(self, name: Any, route: str) -> Served:
        if name is not None and not isinstance(name, str):
            raise Refused(400, "model is no string; see /v1/models")
        if (model := self.models.choose(name, route)) is None:
            which = "no model" if name is None else f"no model {name[:60]!a}"
            raise Refused(404, f"{which} here for /v1/{route}; see /v1/models")
        return model

    def _prepared(
        self, head: Head, items: Sequence[Any], deadline: float, left: threading.Event
    ) -> list[Prepared | Refused]:
        """Return the rows of each item, or the error if it has none.

        Raise Refused after the deadline or for too many rows, ClientDisconnect if the client has left.
        """
        steps = [functools.partial(_prepare, head, item, self.limits.windows) for item in items]
        return [one for one in self._each(steps, deadline, left) if one is not None]

    def _continued(
        self,
        prepared: Sequence[Prepared | Refused],
        jobs: Sequence[Job | None],
        deadline: float,
        left: threading.Event,
    ) -> list[Prepared | Refused | None]:
        """Return the further rows of each input that has some; None for the others. Raise as `_prepared` does."""
        steps = [functools.partial(_further, one, job) for one, job in zip(prepared, jobs, strict=True)]
        return self._each(steps, deadline, left)

    def _each(
        self, steps: Sequence[Callable[[], Prepared | None]], deadline: float, left: threading.Event
    ) -> list[Prepared | Refused | None]:
        """Return the result of each step: rows, None, or an error. Raise as `_prepared` does."""
        inputs: list[Prepared | Refused | None] = []
        rows = 0
        for step in steps:
            if left.is_set():
                self.metrics.dropped.labels("client gone").inc(len(steps))
                raise ClientDisconnect
            if time.monotonic() > deadline:
                self.metrics.dropped.labels("expired").inc(len(steps))
                raise self._too_late()
            try:
                inputs.append(one := step())
                rows += len(one.rows) if one else 0
            except RequestError as error:
                inputs.append(Refused(400, str(error)))
            except Exception as error:  # whatever it is, the other inputs are answered
                inputs.append(_failed(error))
            if rows > self.limits.queue:
                raise Refused(400, f"the inputs have more than {self.limits.queue} windows together; send fewer")
        return inputs

    def _too_late(self) -> Refused:
        seconds = f"{self.limits.answer_seconds:g} s"
        return Refused(504, f"not computed within {seconds}; send less, or try again later")

    async def _compute(self, gone: asyncio.Task[None], jobs: Sequence[Job]) -> None:
        """Wait until all jobs have ended; cancel them if the client goes away or the time is over.

        gone: ends when the client goes away.
        """
        if not jobs:
            return
        if gone.done():
            self.metrics.dropped.labels("client gone").inc(len(jobs))
            raise ClientDisconnect
        try:
            if self.worker.wait() > self.limits.answer_seconds:
                raise QueueFull  # it would be too late
            self.queue.put(jobs)
        except QueueFull:
            self.metrics.dropped.labels("queue full").inc(len(jobs))
            raise Refused(503, "too much waits already; try again later", self.worker.retry_after()) from None
        pending = asyncio.gather(*(asyncio.wrap_future(job.future) for job in jobs), return_exceptions=True)
        left = max(0.0, jobs[0].deadline - time.monotonic())
        try:
            await asyncio.wait((pending, gone), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left_alone = gone.done() and not pending.done()
            for job in jobs:
                job.future.cancel()  # those that have ended stay as they are; `pending` ends with them
        if left_alone:
            self.metrics.dropped.labels("client gone").inc(len(jobs))
            raise ClientDisconnect
        if any(_expired(job) for job in jobs):
            self.metrics.dropped.labels("expired").inc(len(jobs))
            raise self._too_late()

    def _answer(
        self, model: str, prepared: Sequence[Prepared | Refused], jobs: Sequence[Job | None], several: bool
    ) -> bytes:
        """Return the answer as JSON. Raise Refused if it is too large, or if the model failed on the only input."""
        rendered, size = [], 0
        for one, job in zip(prepared, jobs, strict=True):  # memory holds the objects of one input at a time
            output = _output_or_error(one, job) if several else {"model": model, **_output(one, job)}
            rendered.append(_json(output))
            size += len(rendered[-1]) + 1
            if size > self.limits.answer:
                raise Refused(400, f"the answer has more than {self.limits.answer:,} bytes; ask for less at once")
        return b'{"model":%b,"outputs":[%b]}' % (_json(model), b",".join(rendered)) if several else rendered[0]

    async def _body(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "the body is not application/json; send that content type")
        too_large = Refused(413, f"the body has more than {self.limits.body:,} bytes; send less")
        if int(request.headers.get("content-length") or 0) > self.limits.body:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.receive_seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.limits.body:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            raise Refused(408, f"not received within {self.limits.receive_seconds:g} s; send it faster") from None
        return b"".join(parts)


def _is_crowded(request: Request) -> bool:
    """Return whether the connection of the request is beyond the maximum number (`connections.py`)."""
    return bool(getattr(request.state, "crowded", False))


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body.decode("utf-8"))
    except RecursionError:
        raise Refused(400, "the body is not JSON in UTF-8: nested too deeply") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Refused(400, f"the body is not JSON in UTF-8: {error}") from None
    except ValueError:
        raise Refused(400, "the body has a number of too many digits") from None
    if not isinstance(fields, dict):
        raise Refused(400, "the body is no JSON object; see /docs for what to send")
    return fields


async def _disconnected(request: Request) -> None:
    """Wait until the client has gone away. The whole body must have been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _prepare(head: Head, item: Any, most: int) -> Prepared:
    return head.prepare(parse_request(head.item, item), most)


def _further(one: Prepared | Refused, job: Job | None) -> Prepared | None:
    if isinstance(one, Refused) or one.then is None:
        return None
    assert job is not None, "what is prepared has a job"
    return one.then(job.future.result())


def _job(one: Prepared, head: Head, deadline: float) -> Job:
    return Job(one.head or head, one.rows, one.lengths, deadline)


def _expired(job: Job) -> bool:
    return job.future.cancelled() or isinstance(job.future.exception(), Expired)


def _json(value: Any) -> bytes:
    """Return JSON as Starlette writes it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def _output_or_error(one: Prepared | Refused, job: Job | None) -> dict[str, Any]:
    try:
        return _output(one, job)
    except Refused as error:
        return _error(error.status, error.reason)


def _output(one: Prepared | Refused, job: Job | None) -> dict[str, Any]:
    if isinstance(one, Refused):
        raise one
    assert job is not None, "what is prepared has a job"
    try:
        return one.finish(job.future.result())
    except Exception as error:  # whatever it is, it is the answer to this input only
        raise _failed(error) from error


def _failed(error: Exception) -> Refused:
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return Refused(500, f"the model failed: {first[:SHOWN]}")


def _error(status: int, reason: str) -> dict[str, Any]:
    return {"error": {"status": status, "reason": reason}}


def application(
    service: Service, *, version: str, hosts: Sequence[str] = ("*",), origins: Sequence[str] = ()
) -> Starlette:
    """Return the application.

    hosts: values of the header Host that are answered. origins: web sites whose pages may ask the service.
    """
    described = description.openapi(version)

    def asked(route: str) -> Route:
        async def handle(request: Request) -> Response:
            return await service.ask(request, route)

        return Route(f"/v1/{route}", handle, methods=["POST"])

    async def models(request: Request) -> Response:
        return JSONResponse({"models": [model.details for model in service.models.all()]})

    async def healthy(request: Request) -> Response:
        works = service.worker.is_alive()
        return JSONResponse({"status": "ok" if works else "the computing thread has ended"}, 200 if works else 503)

    async def ready(request: Request) -> Response:
        takes = service.worker.is_alive() and not service.stopping
        return JSONResponse({"status": "ready" if takes else "stopping"}, 200 if takes else 503)

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    async def docs(request: Request) -> Response:
        return HTMLResponse(description.page(described))

    def file(name: str) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def send(request: Request) -> Response:
            return FileResponse(PAGE / name)

        return send

    pages = {"/v1/models": models, "/healthz": healthy, "/readyz": ready, "/metrics": metrics}
    pages |= {"/openapi.json": openapi, "/docs": docs} | {path: file(name) for path, name in FILES.items()}
    routes = [asked(head.route) for head in heads.routes()]
    routes += [Route(path, handle) for path, handle in pages.items()]
    middleware = [Middleware(functools.partial(_Observed, service, frozenset(route.path for route in routes)))]
    middleware += [Middleware(_Strict), Middleware(functools.partial(_Named, frozenset(map(str.lower, hosts))))]
    if origins:
        methods, sent = ["GET", "POST"], ["content-type"]
        middleware += [
            Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=methods, allow_headers=sent)
        ]
    handlers: dict[Any, Any] = {Refused: _refused, 404: _http_error, 405: _http_error}
    made = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=service.lifespan)
    made.router.redirect_slashes = False  # it would repeat the name that the client gave the service
    return made


async def _refused(request: Request, error: Refused) -> Response:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    # Do not wait for the rest of the body. After a 413 it is read and discarded, for as long as a head may take: a
    # client that still sends when the connection is closed may never see the answer.
    if error.status in (408, 415) or _is_crowded(request):
        headers["connection"] = "close"
    return JSONResponse(_error(error.status, error.reason), error.status, headers)


async def _http_error(request: Request, error: Any) -> Response:
    reason = {404: "no such address; see /docs", 405: "this address takes another method; see /docs"}
    return JSONResponse(_error(error.status_code, reason[error.status_code]), error.status_code, error.headers)


class _Strict:
    """Middleware that refuses unknown versions of HTTP, and requests that two servers may end at different places."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = None
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if "content-length" in headers and "transfer-encoding" in headers:  # RFC 9112, 6.1
                refused = 400, "Content-Length and Transfer-Encoding are both given; send one of them"
            elif scope["http_version"] not in ("1.0", "1.1"):
                refused = 505, "this version of HTTP is not known; use HTTP/1.1"
        if refused is None:
            await self.app(scope, receive, send)
            return
        status, reason = refused
        await JSONResponse(_error(status, reason), status, {"connection": "close"})(scope, receive, send)


class _Named:
    """Middleware that refuses requests whose header Host is not a name of the service."""

    def __init__(self, names: frozenset[str], app: ASGIApp) -> None:
        self.names, self.app = names, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and "*" not in self.names:
            host = HOST.fullmatch(Headers(scope=scope).get("host", ""))
            if not host or host[1].lower() not in self.names:
                reason = "the header Host has no name of this service; see --allow_host"
                await JSONResponse(_error(400, reason), 400)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class _Observed:
    """Middleware that counts and logs each request, and adds `HEADERS` for browsers to its answer."""

    def __init__(self, service: Service, paths: frozenset[str], app: ASGIApp) -> None:
        self.service, self.paths, self.app = service, paths, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        try:
            await self.app(scope, receive, sent)
        except ClientDisconnect:
            status = 499  # nobody is left to get an answer
        except Exception as error:  # a mistake of ours; its message may have texts of the request
            log({"event": "error", "message": f"{type(error).__name__} in {_place(error)}"})
            if not status:
                await JSONResponse(_error(500, "the service failed; its log says where"), 500)(scope, receive, sent)
        finally:
            seconds = time.perf_counter() - begun
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.service.metrics.requests.labels(path, str(status)).inc()
            self.service.metrics.seconds.labels(path).observe(seconds)
            if self.service.log:
                rows = scope.get("state", {}).get("rows", 0)
                method = scope["method"] if scope["method"] in METHODS else "other"  # a client may send any word
                fields = {"method": method, "path": path, "status": status, "seconds": round(seconds, 4)}
                log({"event": "request", **fields, "rows": rows})


def _place(error: BaseException) -> str:
    """Return file and line in which an exception was raised."""
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    return f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else "an unknown place"


def log(entry: dict[str, Any]) -> None:
    """Write a line of JSON to standard error."""
    with contextlib.suppress(OSError, ValueError):  # nobody reads it, or it is closed: requests are answered still
        print(json.dumps({"time": round(time.time(), 3), **entry}), file=sys.stderr, flush=True)


class Lines(logging.Handler):
    """Writes what libraries report as lines of JSON, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one report."""
        error = record.exc_info[1] if record.exc_info else None
        where = f" ({type(error).__name__} in {_place(error)})" if error else ""
        log({"event": record.levelname.lower(), "message": f"{record.getMessage().strip()}{where}"})
