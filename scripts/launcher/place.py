"""What Gloo has to know of a rank: its place, where horovodrun does not tell it; its interface."""

import fcntl
import os
import socket
import struct

import settings

INTERFACES = "BERT_INTERFACES"  # those that the user named, in order; hosts may have different ones
Place = tuple[int, int]  # a rank's number, and how many there are
SIOCGIFADDR = 0x8915  # of ioctl: the address of an interface (linux/sockios.h)


def meet_by_gloo(port: str) -> None:
    """Set what horovodrun would set for this rank. port: of the server by which the ranks find each other."""
    here, local_rank = int(os.environ["SLURM_NODEID"]), int(os.environ["SLURM_LOCALID"])
    on_nodes = settings.tasks_per_node(os.environ["SLURM_STEP_TASKS_PER_NODE"])
    # The ranks with the same number on their nodes, in the order of the nodes.
    across = [node for node, ranks in enumerate(on_nodes) if ranks > local_rank]
    server = os.environ["SLURM_LAUNCH_NODE_IPADDR"]  # where srun runs
    all_ranks = int(os.environ["SLURM_PROCID"]), sum(on_nodes)
    across_nodes = across.index(here), len(across)
    name = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    os.environ.update(by_gloo(all_ranks, (local_rank, on_nodes[here]), across_nodes, name, server, port))
    # Without a name Gloo takes the address that the host's own name has, which on many systems is 127.0.1.1.
    if interface := interface_towards(server, int(port)):
        settings.set_defaults(HOROVOD_GLOO_IFACE=interface, NCCL_SOCKET_IFNAME=interface)


def by_gloo(all_ranks: Place, local: Place, across: Place, host: str, server: str, port: str) -> dict[str, str]:
    """Return the variables of a rank: its number and how many there are, in all, on its host and across hosts."""
    places = {"": all_ranks, "LOCAL_": local, "CROSS_": across}
    variables = {f"HOROVOD_{kind}RANK": str(number) for kind, (number, _) in places.items()}
    variables |= {f"HOROVOD_{kind}SIZE": str(count) for kind, (_, count) in places.items()}
    variables |= {"HOROVOD_HOSTNAME": host, "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    return variables | {"HOROVOD_GLOO_RENDEZVOUS_ADDR": server, "HOROVOD_GLOO_RENDEZVOUS_PORT": port}


def own_interface() -> str:
    """Return the first of the named interfaces that this host has; empty if none is named, or it has none of them."""
    here = {name for _, name in socket.if_nameindex()}
    return next((name for name in _named() if name in here), "")


def missing_interface() -> str:
    """Return a message if this host has none of the named interfaces; empty if it has one, or none is named."""
    if not _named() or own_interface():
        return ""
    here = ", ".join(name for _, name in socket.if_nameindex())
    return f"no such network interface here, but {here} ; give one of each host, as eth0,ens3"


def _named() -> list[str]:
    """Return the interfaces that were named for all hosts."""
    names = os.environ.get(INTERFACES) or os.environ.get("HOROVOD_GLOO_IFACE") or ""
    return [name for name in names.split(",") if name]


def interface_towards(address: str, port: int) -> str:
    """Return the interface whose IPv4 address this host has towards another one; empty if none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))  # sends nothing
        mine = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == mine:
                return name
    return ""
