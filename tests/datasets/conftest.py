import socket

import pytest

from .helpers import running_server


@pytest.fixture(autouse=True)
def no_real_home_or_network(monkeypatch, tmp_path):
    """Gives each test an empty cache; no test reads the user's files or uses the network."""
    home = tmp_path / "home"
    home.mkdir()
    sets = ("MNIST", "FASHION_MNIST", "CIFAR10", "CIFAR100")
    for name in (*(f"KERASCNN_{name}" for name in sets), "KERAS_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("KERASCNN_HOME", str(home / "kerascnn"))
    monkeypatch.setenv("no_proxy", "*")

    resolve = socket.getaddrinfo

    def resolve_loopback_only(host, *args, **kwargs):
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_loopback_only)
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def server():
    with running_server() as running:
        yield running
