"""Network namespaces that stand for machines: each has its own name, address, and one cable.

Linux and root only. Processes in them share files, memory and cores, so that only what goes over
the network is that of several machines.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path

# MPI would see through it: these machines have one memory.
VARIABLES = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}


_numbers = itertools.count()


class NoNetwork(Exception):
    """This machine does not let one make networks."""


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoNetwork(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Network:
    """So many machines on one switch; a context manager.

    Args:
        size: How many.
        rate: What each can send, in bits a second, such as "1gbit"; without it all that there is.

    Raises:
        NoNetwork: where this machine does not have what it needs, with the reason.
    """

    def __init__(self, size: int, rate: str | None = None):
        self.size, self.rate = size, rate
        # Linux takes its time to remove one. Names of interfaces have up to 15 characters.
        self._name = f"kc{os.getpid() % 100000}x{next(_numbers)}"

    def __enter__(self) -> Network:
        if os.geteuid() != 0:
            raise NoNetwork("network namespaces need root")
        for program in ("ip", "unshare", "tc"):
            if shutil.which(program) is None:
                raise NoNetwork(f"there is no program `{program}`")
        try:
            self._make()
        except NoNetwork:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        ip("link", "add", self._name, "type", "bridge")
        ip("link", "set", self._name, "up")
        for i in range(self.size):
            node, port = self.node(i), f"{self._name}p{i}"
            ip("netns", "add", node)
            ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node)
            ip("link", "set", port, "master", self._name, "up")
            ip("-n", node, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            ip("-n", node, "link", "set", "eth0", "up")
            ip("-n", node, "link", "set", "lo", "up")
            if self.rate is not None:
                limit = f"tbf rate {self.rate} burst 64kb limit 4mb".split()
                self._tc(node, *limit)

    def _tc(self, node: str, *discipline: str) -> None:
        command = ["tc", "-n", node, "qdisc", "add", "dev", "eth0", "root", *discipline]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoNetwork(f"{' '.join(command)}: {done.stderr.strip()}")

    def __exit__(self, *error: object) -> None:
        for i in range(self.size):
            subprocess.run(["ip", "netns", "del", self.node(i)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._name], capture_output=True, check=False)

    def node(self, i: int) -> str:
        """Returns the name of a machine."""
        return f"{self._name}n{i}"

    def address(self, i: int) -> str:
        """Returns the address of a machine."""
        return f"10.213.45.{i + 1}"

    def command(self, i: int) -> list[str]:
        """Returns the beginning of a command that runs on a machine."""
        named = f'hostname {self.node(i)} && exec "$@"'
        return ["ip", "netns", "exec", self.node(i), "unshare", "--uts", "sh", "-c", named, "sh"]

    def cut(self, i: int) -> None:
        """Pulls the cable of a machine."""
        ip("link", "set", f"{self._name}p{i}", "down")

    def bytes_sent(self, i: int) -> int:
        """Returns what a machine has sent over its cable."""
        return int(Path(f"/sys/class/net/{self._name}p{i}/statistics/rx_bytes").read_text())
