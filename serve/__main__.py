"""Answer questions about texts over HTTP, and on a web page, with one or more trained models.

    python -m serve --model RUN [NAME=RUN ...] [--port 8000]
    python -m serve --model SQUAD_RUN --search INDEX        # of python -m bert.search index

Each RUN is a run directory, or an import. What it can be asked follows from its head: questions (squad.train), classes,
choices or tags (tasks.train), masked words (bert.pretrain), and features of texts (all). An index can be searched, and
a question answered from the passages that are found. The page is at /, a description of all addresses at /docs.
Requests wait in a queue that is bounded; several are computed together. Models whose encoders have the same weights,
apart from updates of LoRA, have one encoder in memory. A model whose run directory changes, or all of them on SIGHUP,
is loaded again without losing a request. SIGTERM and Ctrl-C end the service after the requests that it has taken.

Only this machine is served unless --host says otherwise. There is no authentication and no encryption: put a server
that has both before it. Needs starlette, uvicorn and prometheus_client (the extra packages of pyproject.toml).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bert import __version__
from bert.core import cli, ranges
from bert.core.errors import InputError, UsageError
from bert.core.progress import SCREEN
from bert.core.ranges import BatchSize, Range
from bert.hardware.choices import Compute, DeviceName, EngineName

if TYPE_CHECKING:
    from serve.models import Models

LOCAL = ("127.0.0.1", "localhost", "::1")
BACKLOG = 2048  # connections that wait to be accepted
NAME = re.compile(r"\[[0-9a-f:.]+\]|[^\s:\[\]@/]+", re.ASCII | re.IGNORECASE)  # of a host, without a port
# As browsers write an origin: in lower case, without a path and without the usual port.
ORIGIN = re.compile(r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://[^\s/?#@*A-Z]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m serve`."""

    model: tuple[str, ...]
    """run directories, RUN or NAME=RUN; without a name, a model is called as its folder"""
    search: Path | None = None
    """folder of an index of python -m bert.search, to search it"""
    encoder: Path | None = None
    """run directory of the model that made the index, none: where it was then; without --search the model that searches
    documents which are sent with a request"""
    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 serves other machines, too"""
    port: Annotated[int, Range(0, 65_535)] = 8000
    """port to listen on; 0 takes a free one"""
    allow_host: tuple[str, ...] = ()
    """names by which clients may call the service, besides this machine's own; with --host of other machines: any"""
    allow_origin: tuple[str, ...] = ()
    """web sites, such as https://example.org, whose pages may ask the service"""
    batch: BatchSize = 16
    """maximum windows or texts that are computed at once"""
    delay: Annotated[float, Range(0, 10)] = 0.002
    """seconds that a request may wait for others to be computed with"""
    queue: Annotated[int, Range(1, 10**6)] = 1024
    """windows that may wait; beyond that requests are refused with 503"""
    windows: Annotated[int, Range(1, 10**6)] = 256
    """maximum windows of one input"""
    body: Annotated[int, Range(1024, 2**30)] = 2**20
    """maximum bytes of a request"""
    answer: Annotated[int, Range(1024, 2**30)] = 2**24
    """maximum bytes of an answer"""
    connections: Annotated[int, Range(1, 10**6)] = 1000
    """maximum connections at once; questions on those beyond it are refused with 503"""
    receive_seconds: Annotated[float, Range(0.1, 3600)] = 10.0
    """time in which the head of a request must arrive, then its body; and in which an answer must be read"""
    answer_seconds: Annotated[float, Range(0.1, 3600)] = 30.0
    """time after which a request is not answered any more"""
    reload_seconds: Annotated[float, Range(0, 86_400)] = 10.0
    """time between looks at the run directories for changes; 0: only on SIGHUP"""
    log: bool = True
    """write a line of JSON for each request, without its text"""
    compute: Compute = "float32"
    """data type of matrix products"""
    engine: EngineName = "auto"
    """what computes the encoder: openvino or openvino_int8, on CPUs; tensorflow; auto: openvino if it can"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.queue < self.windows:
            raise UsageError(f"--queue {self.queue}: less than --windows {self.windows}; give at least as many")
        if "*" in self.allow_origin:
            raise UsageError("--allow_origin *: any web site could use the service; name the sites")
        if unknown := [origin for origin in self.allow_origin if not ORIGIN.fullmatch(origin)]:
            raise UsageError(
                f"--allow_origin {unknown[0]!a}: no browser sends this; give https://HOST or https://HOST:PORT, in "
                "lower case, without a path and without the usual port"
            )
        if unknown := [name for name in self.allow_host if not NAME.fullmatch(name)]:
            raise UsageError(f"--allow_host {unknown[0]!a}: not the name of a host; give it without https:// and port")


def listener(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, on which nobody is answered yet. Raise UsageError if that fails."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--host {host} --port {port}: {error}; give another address or port") from error
    return bound


def _listen(bound: socket.socket, options: Options) -> None:
    """Listen. Raise UsageError if another program has begun to listen there since the socket was bound."""
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise UsageError(f"--host {options.host} --port {options.port}: {error}; give another port") from error


def _hosts(options: Options, address: str) -> tuple[str, ...]:
    """Return the values of the header Host that the service answers; "*": all.

    On a loopback address these are only local names and the allowed ones: otherwise a web page could point its own name
    to this service. address: IP address of the socket, whatever --host says.
    """
    if not ipaddress.ip_address(address).is_loopback:
        return options.allow_host or ("*",)
    return (*LOCAL, "[::1]", options.host, *options.allow_host)


def run(options: Options, bound: socket.socket, models: Models) -> None:
    """Serve until a signal ends the service."""
    import uvicorn

    from serve import app, connections

    limits = app.Limits(
        body=options.body,
        answer=options.answer,
        windows=options.windows,
        queue=options.queue,
        receive_seconds=options.receive_seconds,
        answer_seconds=options.answer_seconds,
    )
    service = app.Service(
        models,
        limits,
        batch=options.batch,
        delay=options.delay,
        watch=options.reload_seconds,
        log=options.log,
    )
    application = app.application(
        service, version=__version__, hosts=_hosts(options, bound.getsockname()[0]), origins=options.allow_origin
    )
    config = uvicorn.Config(
        application,
        http=connections.limited(options.receive_seconds, options.connections),
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=round(options.answer_seconds + 1),
        lifespan="on",
        ws="none",
    )

    class Server(uvicorn.Server):
        """Ends with exit code 0 on a signal, and loads the models again on SIGHUP."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop, number)
            loop.add_signal_handler(signal.SIGHUP, service.ask_to_reload)
            yield

        def _stop(self, number: int) -> None:
            service.stopping = True
            self.handle_exit(number, None)

    logging.basicConfig(handlers=[app.Lines()], level=logging.WARNING if options.log else logging.ERROR, force=True)
    Server(config).run(sockets=[bound])


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m serve", description=__doc__)
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; run: make setup") from error
    from bert.hardware import devices
    from serve.models import Models, Search, named

    runs = named(options.model)
    search = Search(index=options.search, encoder=options.encoder) if options.search or options.encoder else None
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the models are loaded, it has nothing to load again
    with listener(options.host, options.port) as bound:
        devices.choose(options.device)
        models = Models(runs, options.compute, options.batch, options.engine, search)
        for model in models.all():
            print(f"{model.name}: {', '.join(model.heads)}", file=sys.stderr)
        for engine, names in models.sharing():
            print(f"one encoder in memory, computed by {engine}: {', '.join(names)}", file=sys.stderr)
        _listen(bound, options)  # who connects from now on waits for an answer
        host = f"[{options.host}]" if ":" in options.host else options.host
        SCREEN.quiet()  # from now on it waits for requests
        print(f"listening on http://{host}:{bound.getsockname()[1]}", file=sys.stderr, flush=True)
        run(options, bound, models)


if __name__ == "__main__":
    cli.main(main)
