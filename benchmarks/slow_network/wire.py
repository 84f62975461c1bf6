"""A wire with a delay: two TUN devices, between which this process carries every packet after holding it.

    python -m benchmarks.slow_network.wire DEVICE MILLISECONDS NAMESPACE NAMESPACE

It makes a device of that name in each of the two network namespaces, prints "ready", and carries packets until it is
killed. Packets of one direction keep their order. Segments that the kernel has joined for its own efficiency travel
joined, so that a gigabit per second is some thousand packets only. The process's own scheduling adds to the delay: see
the measured round trip.
"""

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
CHECKSUM, TSO4 = 0x01, 0x02  # the kernel may leave both to the receiver
LARGEST = 65_536 + 64  # bytes: a joined packet and its header
AT_ONCE = 64  # packets that are read before others are delivered

Held = deque[tuple[float, bytes]]  # when a packet is due, and the packet


def open_end(number: int, device: str, namespace: str) -> int:
    """Make a TUN device in the namespace; return its file descriptor, which stays here."""
    end, passing = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK), f"wire{os.getpid() % 10**8}{number}"
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", passing.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(end, TUNSETOFFLOAD, CHECKSUM | TSO4)
    subprocess.run(["ip", "link", "set", passing, "netns", namespace, "name", device], check=True)
    return end


def read_into(queue: Held, end: int, seconds: float) -> None:
    """Hold what a device has sent for this many seconds."""
    for _ in range(AT_ONCE):
        try:
            packet = os.read(end, LARGEST)
        except BlockingIOError:
            return
        queue.append((time.monotonic() + seconds, packet))


def deliver(queue: Held, end: int) -> None:
    """Give a device what is due."""
    while queue and queue[0][0] <= time.monotonic():
        try:
            os.write(end, queue[0][1])
        except BlockingIOError:
            return
        except OSError:
            pass  # the device is down: the packet is lost, as on a wire that is cut
        queue.popleft()


def carry(ends: tuple[int, int], seconds: float) -> None:
    """Carry packets both ways, for ever."""
    queues: dict[int, Held] = {ends[0]: deque(), ends[1]: deque()}  # by the end that they are for
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    while True:
        due = [queue[0][0] for queue in queues.values() if queue]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        for end in select.select(ends, [], [], wait)[0]:
            read_into(queues[other[end]], end, seconds)
        for end, queue in queues.items():
            deliver(queue, end)


def main() -> None:
    device, milliseconds, *namespaces = sys.argv[1:]
    first, second = (open_end(number, device, name) for number, name in enumerate(namespaces))
    print("ready", flush=True)
    carry((first, second), float(milliseconds) / 1000)


if __name__ == "__main__":
    main()
