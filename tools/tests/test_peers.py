"""Peers: the list gives a reason for each missing one, and only a library that really serves becomes a peer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tslab import peers
from tslab.peers import Origin, UnavailableError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    monkeypatch.setattr(peers, "INDEX", tmp_path / "peers.json")
    return tmp_path


def compiled(code: str) -> Origin:
    def make(target: Path) -> str:
        command = ["cc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)]
        subprocess.run(command, input=code, text=True, check=True)
        return "1.0"

    return Origin("compiled here", make)


def refusing(reason: str) -> Origin:
    def make(_: Path) -> str:
        raise UnavailableError(reason)

    return Origin("nowhere", make)


PASSES_ON = "void *__libc_malloc(unsigned long); void *malloc(unsigned long n) { return __libc_malloc(n); }"


@pytest.mark.parametrize(("number", "version"), [(212, "2.1.2"), (20302, "2.3.2"), (30403, "3.4.3")])
def test_mimalloc_versions(number: int, version: str) -> None:
    assert peers.mimalloc_version(number) == version


def test_first_origin_that_serves_is_taken_and_the_others_are_told() -> None:
    peer = peers.obtain("some", [refusing("not packaged"), compiled(PASSES_ON)])
    assert peer.available
    assert peer.version == "1.0"
    assert "not packaged" in peer.source


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("int nothing;", "malloc comes from"),
        ("void *malloc(unsigned long n) { return *(void **)0; }", "ends with status"),
        ("void gone(void); void *malloc(unsigned long n) { gone(); return 0; }", "ends with status"),
    ],
)
def test_library_that_does_not_serve_is_missing_with_its_reason(code: str, reason: str, folder: Path) -> None:
    peer = peers.obtain("some", [compiled(code)])
    assert not peer.available
    assert reason in peer.reason
    assert not (folder / "some.so").exists()


def test_failing_command_names_what_failed() -> None:
    with pytest.raises(UnavailableError, match="no-such-program is not installed"):
        peers.run(["no-such-program"])
    with pytest.raises(UnavailableError, match="sh failed: error: broken"):
        peers.run(["sh", "-c", "echo progress; echo error: broken; exit 1"])


def test_missing_peers_are_kept_listed_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PEERS", {"some": [refusing("no package")], "other": [compiled(PASSES_ON)]})
    made = {peer.name: peer for peer in peers.make(["some", "other"], again=False)}
    assert set(made) == {"glibc", "some", "other"}
    assert "missing" in peers.table(list(made.values()))
    assert "nowhere: no package" in peers.table(list(made.values()))
    monkeypatch.setattr(peers, "PEERS", {"some": [compiled(PASSES_ON)], "other": [refusing("must not be asked")]})
    assert all(peer.available for peer in peers.make(["some", "other"], again=False))
