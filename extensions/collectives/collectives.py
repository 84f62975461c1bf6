"""Several ranks through TensorFlow's own collectives, without Horovod: rings over gRPC on CPUs, NCCL on GPUs.

The ranks find each other at the rendezvous server of the launcher, whose variables scripts/launch.sh and
scripts/slurm.sh set. Each rank is a job of its own in TensorFlow's cluster, because TensorFlow orders the members of a
group by the names of their devices, and task 10 would come before task 2.

Sums of two ranks have the bits of Horovod's. Those of more ranks are added in another order, which is always the same.
"""

import atexit
import contextlib
import fcntl
import functools
import http.client
import os
import pickle
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import tensorflow_server_pb2
from tensorflow.python.eager import context as eager

from bert.core.errors import UsageError, UserError
from bert.hardware import graphs
from bert.model.model_shard import Parts, share
from bert.training.communicator import Communicator, SeveralRanks, grid

TASK = "/job:rank{:06d}/replica:0/task:0"
SCOPE = (
    "/global_tensorflow"  # at the rendezvous server, which holds requests for keys of such a scope until they are there
)
WAIT = 30.0  # seconds for all ranks to come, as Gloo's default
PIECE = 128 << 20  # bytes that are summed at once, as in Horovod's fusion buffer: they are copied
LOOK_EVERY = 1.0  # seconds between two looks at the other ranks
ANSWER = 5.0  # seconds that a rank has to answer one
LEAVE = 2.0  # seconds that a rank which ends waits for the others to have received what it sent
SIOCGIFADDR = 0x8915  # of ioctl: the address of an interface (linux/sockios.h)
ROWS = 18  # bits of the number of rows in a key: tokens of a micro-batch
WORLD = 1  # TensorFlow's key of the group of all ranks


class TensorFlowCommunicator(SeveralRanks):
    """Several ranks, through TensorFlow's collectives: all of them, or some."""

    library = "TensorFlow"

    def __init__(
        self, ranks: Sequence[int], own: int, key: int = WORLD, world: "TensorFlowCommunicator | None" = None
    ) -> None:
        """ranks: all ranks of this communicator. own: the rank of this process. key: unique among the sets of ranks."""
        super().__init__(world)
        self.rank, self.size, self._key = list(ranks).index(own), len(ranks), key
        self._programs: dict[Any, Any] = {}
        # Of collectives, in the order of their first use. A rank that ends early still has the last one's.
        self._numbers: dict[tuple[Any, ...], int] = {("leave/0", 1): 0}
        self._order = 0  # a hash of the names in that order, equal on all ranks; the world's
        self._left = threading.Event()
        self._token: tf.Variable | None = None

    def divide(self, replicas: Sequence[int], groups: Sequence[int], keys: tuple[int, int]) -> None:
        """Store the ranks that have this rank's part, the ranks of its group, and a key for each of the two sets."""
        self._replicas, self._group = self._of(replicas, keys[0]), self._of(groups, keys[1])
        self.parts = Parts(self._group.rank, self._group.size, self._group_sum)

    def _of(self, ranks: Sequence[int], key: int) -> Communicator:
        if len(ranks) == 1:
            return Communicator()
        return self if len(ranks) == self.size else TensorFlowCommunicator(ranks, self.rank, key, self)

    def start(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:  # a free port, until TensorFlow takes it
            held.bind((_own_address(), 0))
            addresses = _meet(self.rank, self.size, "{}:{}".format(*held.getsockname()))
        # gRPC would ask a proxy for the other ranks.
        hosts = {address.rpartition(":")[0] for address in addresses}
        os.environ["no_grpc_proxy"] = ",".join(sorted(hosts))  # noqa: SIM112 - gRPC's name
        jobs = {TASK.format(rank).split("/")[1].removeprefix("job:"): [a] for rank, a in enumerate(addresses)}
        context = eager.context()
        context.configure_collective_ops(
            collective_leader=TASK.format(0),
            scoped_allocator_enabled_ops=(),
            use_nccl_communication=self.device.is_gpu,
            device_filters=(TASK.format(self.rank).removesuffix("/replica:0/task:0"),),
        )
        server = tensorflow_server_pb2.ServerDef(
            cluster=tf.train.ClusterSpec(jobs).as_cluster_def(),
            job_name=list(jobs)[self.rank],
            task_index=0,
            protocol="grpc",
            port=int(addresses[self.rank].rpartition(":")[2]),
        )
        server.default_session_config.CopyFrom(context.config)
        context.enable_collective_ops(server)
        try:
            context.ensure_initialized()
        except tf.errors.UnknownError as error:
            raise UserError(f"rank {self.rank}: {addresses[self.rank]}: {error.message}; start it again") from error
        # Collectives that use it run one after the other, in the order of the program: NCCL needs one order everywhere.
        self._token = tf.Variable(0.0, trainable=False)
        threading.Thread(target=self._watch, name="peers", daemon=True).start()
        atexit.register(self._leave)

    def _watch(self) -> None:
        """Abort the collectives of this rank when another one has ended: rank 0 looks at all, the others at rank 0."""
        context, began = eager.context(), time.monotonic()
        others = [TASK.format(rank) for rank in (range(1, self.size) if self.rank == 0 else [0])]
        missed = dict.fromkeys(others, 0)
        seen = set[str]()
        while not self._left.wait(LOOK_EVERY):
            for task in others:
                try:
                    context.check_collective_ops_peer_health(task, timeout_in_ms=int(1000 * ANSWER))
                    missed[task] = 0
                    seen.add(task)
                except (tf.errors.UnavailableError, tf.errors.FailedPreconditionError):
                    missed[task] += task in seen or time.monotonic() - began > WAIT
                except tf.errors.DeadlineExceededError:
                    pass  # it is slow; one that has stalled is for the watchdog
            if any(count > 1 for count in missed.values()) and not self._left.is_set():
                self._abort()
                return

    def _abort(self) -> None:
        eager.context().abort_collective_ops(tf.errors.UNAVAILABLE, "another rank has ended")

    def _leave(self) -> None:
        """Wait a moment until the other ranks have what this one sent, and end the threads that wait for them."""
        self._left.set()
        last = threading.Thread(target=self._meet_again, daemon=True)
        last.start()
        last.join(LEAVE)
        if last.is_alive():
            self._abort()
            last.join(LEAVE)

    def _meet_again(self) -> None:
        with contextlib.suppress(tf.errors.OpError):
            self._sum([tf.zeros([1])], "leave")

    def _options(self, name: str, shape: Sequence[int | None] = ()) -> dict[str, Any]:
        """Return the arguments of a collective of this name, in which all ranks of this communicator take part.

        shape: needed if sums of one name have several shapes, because TensorFlow keeps the shape with the key. None is
        an unknown size.
        """
        assert isinstance(self._world, TensorFlowCommunicator)
        hint = "NCCL" if self.device.is_gpu or self._world.device.is_gpu else "RING"
        named = name, *shape
        if named not in self._numbers:
            self._numbers[named] = len(self._numbers)
            self._world._order = zlib.crc32(name.encode(), self._world._order)
        number = self._numbers[named]
        key = 1 << 30 | number << ROWS if None in shape else number
        return {"group_size": self.size, "group_key": self._key, "instance_key": key, "communication_hint": hint}

    def _ordered(self) -> list[tf.Tensor]:
        assert isinstance(self._world, TensorFlowCommunicator) and self._world._token is not None, "call `start` first"
        return [self._world._token.handle]

    def _group_sum(self, x: tf.Tensor, name: str) -> tf.Tensor:
        assert isinstance(self._group, TensorFlowCommunicator)
        return self._group._reduce(x, name)

    def _reduce(self, x: tf.Tensor, name: str) -> tf.Tensor:
        options, flat = self._options(name, x.shape.as_list()), x
        if not x.shape.is_fully_defined():  # of a layer's state, rows and tokens differ between batches
            known = [size for size in x.shape if size is not None]
            flat = tf.reshape(x, [-1])
            rows = tf.size(x) // int(np.prod(known))
            options["instance_key"] += tf.bitwise.bitwise_and(rows, (1 << ROWS) - 1)
        summed = tf.raw_ops.CollectiveReduceV2(
            input=flat, ordering_token=self._ordered(), merge_op="Add", final_op="Id", **options
        )
        return summed if flat is x else tf.ensure_shape(tf.reshape(summed, tf.shape(x)), x.shape)

    def _sum(self, tensors: Sequence[tf.Tensor], name: str, fp16: bool = False) -> list[tf.Tensor]:
        """Return the sums over the ranks of tensors, which have one type, in few collectives."""
        sums: list[tf.Tensor] = []
        for number, piece in enumerate(_pieces(tensors)):
            flat = tf.concat([tf.reshape(x, [-1]) for x in piece], 0)
            dtype = flat.dtype
            summed = self._reduce(tf.cast(flat, tf.float16) if fp16 else flat, f"{name}/{number}")
            sums += _split(tf.cast(summed, dtype), [x.shape for x in piece])
        return sums

    def _scatter(self, tensors: Sequence[tf.Tensor], name: str, fp16: bool = False) -> list[tf.Tensor]:
        """Return this rank's rows of the sums of tensors.

        TensorFlow has no reduce-scatter on CPUs. So each rank sends the others their rows, and adds up what it got.
        """
        rows = [[share(x.shape[0], rank, self.size) for x in tensors] for rank in range(self.size)]
        dtype = tensors[0].dtype
        for_ranks = [_flat([x[first:last] for x, (first, last) in zip(tensors, mine, strict=True)]) for mine in rows]
        longest = max(flat.shape[0] for flat in for_ranks)
        sent = tf.stack([_padded(tf.cast(flat, tf.float16) if fp16 else flat, longest) for flat in for_ranks])
        got = tf.raw_ops.CollectiveAllToAllV2(input=sent, ordering_token=self._ordered(), **self._options(name))
        summed = functools.reduce(tf.add, tf.unstack(got, self.size))  # in the order of the ranks
        shapes = [[last - first, *x.shape[1:]] for x, (first, last) in zip(tensors, rows[self.rank], strict=True)]
        return _split(tf.cast(summed, dtype), shapes)

    def _run(
        self, collective: Callable[..., list[tf.Tensor]], tensors: Sequence[tf.Tensor], fp16: bool = False
    ) -> list[tf.Tensor]:
        """Run a collective. Compile a program for each new list of shapes, in the same order on all ranks."""
        if not tensors:
            return []
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        key = collective.__name__, fp16, tuple((*tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in self._programs:
            name = f"run_{len(self._programs)}"
            specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
            program = graphs.function(lambda tensors: collective(tensors, name, fp16))
            self._programs[key] = program.get_concrete_function(specs)
        return list(self._programs[key](tensors))

    def _gather(self, flat: tf.Tensor, name: str) -> tf.Tensor:
        return tf.raw_ops.CollectiveGatherV2(input=flat, ordering_token=self._ordered(), **self._options(name))

    def reducer(self) -> str | None:
        return "NCCL" if self.device.is_gpu else "gRPC"

    def failed(self, error: tf.errors.OpError) -> bool:
        if isinstance(error, tf.errors.InternalError):  # of NCCL, or of any other operation
            return "NCCL" in error.message
        return isinstance(error, (tf.errors.UnavailableError, tf.errors.UnknownError))

    def lost_peer(self, error: tf.errors.OpError) -> bool:
        return isinstance(error, tf.errors.UnavailableError)

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        with self.collective():
            sums = self._run(self._sum, tensors[:num_fp16], fp16=True) + self._run(self._sum, tensors[num_fp16:])
        self._world._has_added = True
        return sums

    def reduce_in_graph(
        self, tensors: Sequence[tf.Tensor], name: str, *, fp16: bool = False, scatter: bool = False
    ) -> list[tf.Tensor]:
        return (self._scatter if scatter else self._sum)(tensors, name, fp16)

    def reduce_scatter(self, tensors: Sequence[tf.Tensor], *, fp16: bool = False) -> list[tf.Tensor]:
        with self.collective():
            return self._run(self._scatter, tensors, fp16)

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        tensors = [tf.convert_to_tensor(x) for x in tensors]
        with self.collective():
            name = f"rows/{len(tensors)}"
            self._options(name)  # so that its own number counts
            counts = tf.constant([self._order >> 1, *(x.shape[0] for x in tensors)], tf.int32)
            orders, rows = np.split(self._gather(counts, name).numpy().reshape(self.size, -1), [1], axis=1)
            if len({*orders.flat}) > 1:
                raise UserError("the ranks use their collectives in different orders; --run.communicator horovod")
            sizes = [
                [_floats(x.dtype, count * int(np.prod(x.shape[1:]))) for x, count in zip(tensors, own, strict=True)]
                for own in rows.tolist()
            ]
            longest = max(map(sum, sizes))
            flat = _padded(tf.concat([_to_floats(x) for x in tensors], 0), longest)
            gathered = tf.reshape(self._gather(flat, f"gather/{longest}"), [self.size, longest])
            parts = [tf.split(all_of_it[: sum(size)], size) for all_of_it, size in zip(gathered, sizes, strict=True)]
            return [
                tf.concat(
                    [
                        _from_floats(part[place], x.dtype, [count[place], *x.shape[1:]])
                        for part, count in zip(parts, rows.tolist(), strict=True)
                    ],
                    0,
                )
                for place, x in enumerate(tensors)
            ]

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        value = tf.convert_to_tensor(value)
        flat = _to_floats(value)
        options = self._options(f"broadcast/{flat.shape[0]}")
        with self.collective():
            if self.rank == 0:
                flat = tf.raw_ops.CollectiveBcastSendV2(input=flat, **options)
            else:
                flat = tf.raw_ops.CollectiveBcastRecvV2(T=tf.float32, shape=[flat.shape[0]], **options)
        return _from_floats(flat, value.dtype, value.shape)

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        for variable in variables:
            variable.assign(self.broadcast(variable.read_value()))

    def broadcast_object(self, value: Any) -> Any:
        data = np.frombuffer(pickle.dumps(value) if self.rank == 0 else b"", np.uint8)
        size = int(self.broadcast(tf.constant(len(data), tf.int64)))
        return pickle.loads(self.broadcast(tf.constant(np.resize(data, size))).numpy().tobytes())


def _pieces(tensors: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
    """Return the tensors in lists of at most `PIECE` bytes. A larger tensor is alone in its list."""
    pieces: list[list[tf.Tensor]] = []
    room = 0
    for x in tensors:
        size = x.dtype.size * x.shape.num_elements()
        if not pieces or size > room:
            pieces.append([])
            room = PIECE
        pieces[-1].append(x)
        room -= size
    return pieces


def _flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(x, [-1]) for x in tensors], 0)


def _padded(flat: tf.Tensor, size: int) -> tf.Tensor:
    return tf.pad(flat, [[0, size - flat.shape[0]]])


def _split(flat: tf.Tensor, shapes: Sequence[Any]) -> list[tf.Tensor]:
    """Return the tensors of these shapes that lie in `flat` one after the other; what is left is padding."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    pieces = tf.split(flat[: sum(sizes)], sizes)
    return [tf.reshape(piece, shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _floats(dtype: tf.DType, elements: int) -> int:
    """Return the number of float32 that hold the bits of `elements` elements of this type."""
    return -(-elements * dtype.size // 4)


def _to_floats(x: tf.Tensor) -> tf.Tensor:
    """Return the bits of a tensor as a list of float32: not every type can be sent."""
    flat = tf.reshape(tf.cast(x, tf.uint8) if x.dtype == tf.bool else x, [-1])
    if x.dtype.size < 4:
        each = 4 // x.dtype.size
        flat = tf.reshape(_padded(flat, each * _floats(x.dtype, flat.shape[0])), [-1, each])
    return flat if x.dtype == tf.float32 else tf.reshape(tf.bitcast(flat, tf.float32), [-1])


def _from_floats(flat: tf.Tensor, dtype: tf.DType, shape: Any) -> tf.Tensor:
    """Return the tensor whose bits `_to_floats` gave."""
    if dtype.size > 4:
        flat = tf.reshape(flat, [-1, dtype.size // 4])
    bits = flat if dtype == tf.float32 else tf.bitcast(flat, tf.uint8 if dtype == tf.bool else dtype)
    return tf.cast(tf.reshape(tf.reshape(bits, [-1])[: int(np.prod(shape))], shape), dtype)


def join(size: int, tensor: int) -> TensorFlowCommunicator:
    """Return the communicator of `size` ranks; each `tensor` neighbouring ones are a group that holds one model.

    Raise UsageError if the launcher has not told where the ranks can find each other.
    """
    try:
        rank = int(os.environ["HOROVOD_RANK"])
        local = int(os.environ["HOROVOD_LOCAL_RANK"]), int(os.environ["HOROVOD_LOCAL_SIZE"])
        _server()
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"--run.communicator tensorflow: the launcher did not set {error}; start the ranks by "
            "scripts/launch.sh, or by scripts/slurm.sh without MPI"
        ) from error
    comm = TensorFlowCommunicator(range(size), rank)
    comm.local_rank, comm.local_size = local
    if tensor > 1:
        replicas, groups = grid(size, tensor)
        part, group = rank % tensor, rank // tensor
        comm.divide(replicas[part], groups[group], (WORLD + 1 + part, WORLD + 1 + tensor + group))
    return comm


def _server() -> tuple[str, int]:
    return os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])


def _meet(rank: int, size: int, mine: str) -> list[str]:
    """Return the addresses of all ranks, HOST:PORT; rank 0 collects them. Raise UserError if a rank does not come.

    mine: this rank's.
    """
    deadline = time.monotonic() + float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", WAIT))
    _ask("PUT", rank, mine.encode())
    if rank == 0:
        _ask("PUT", size, "\n".join(_value_of(other, deadline) for other in range(size)).encode())
    return _value_of(size, deadline).split("\n")


def _own_address() -> str:
    """Return this host's address on the interface that the launcher named, or else the one towards its server."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if name := os.environ.get("HOROVOD_GLOO_IFACE"):
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                return socket.inet_ntoa(answer[20:24])
        probe.connect(_server())  # sends nothing
        address: str = probe.getsockname()[0]
        return address


def _value_of(key: int, deadline: float) -> str:
    """Wait until a key has a value, and return it. Raise UserError at the deadline.

    The key of a rank holds its address. The number of ranks is the key of all addresses.
    """
    while (value := _ask("GET", key)) is None:
        if time.monotonic() > deadline:
            raise UserError(
                f"no address of rank {key} came from the launcher's server in time; see that rank's messages"
            )
        time.sleep(0.05)
    return value.decode()


def _ask(method: str, key: int, body: bytes | None = None) -> bytes | None:
    """Return what the launcher's server answers; None if the key is not there."""
    address, port = _server()
    try:
        connection = http.client.HTTPConnection(address, port, timeout=WAIT)
        connection.request(method, f"{SCOPE}/{key}", body=body)
        answer = connection.getresponse()
        return answer.read() if answer.status == HTTPStatus.OK else None
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"the launcher's server at {address}:{port} does not answer: {error}") from error
