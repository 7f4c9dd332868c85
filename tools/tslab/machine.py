"""The origin of a result: processor, caches, TLB, kernel, commit, load and stolen time."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def facts(repository: Path) -> dict[str, Any]:
    """Everything that stays the same during a run."""
    cpu_info = _read("/proc/cpuinfo")
    return {
        "cpu": _field(cpu_info, "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "hypervisor": "hypervisor" in _field(cpu_info, "flags").split(),
        "caches": _caches(),
        "tlb": _tlb() or ["not visible to this guest"],
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "thp": _chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or "not visible",
        "commit": commit(repository),
    }


def commit(repository: Path) -> str:
    """The commit of the sources, with a plus sign when they differ from it."""
    head = _git(repository, "rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git(repository, "status", "--porcelain", "--untracked-files=no") else "")


@dataclass(frozen=True)
class Pressure:
    """The other load of the machine between two readings."""

    load: float
    steal_pct: float
    busy_pct: float


class PressureMeter:
    """Load and stolen time since the meter was made or last read."""

    def __init__(self) -> None:
        self._last = _cpu_ticks()

    def read(self) -> Pressure:
        now = _cpu_ticks()
        spent = [after - before for after, before in zip(now, self._last, strict=True)]
        self._last = now
        total = max(1, sum(spent))
        user, nice, system, idle, iowait, _irq, _softirq, steal = spent
        return Pressure(
            load=os.getloadavg()[0],
            steal_pct=100 * steal / total,
            busy_pct=100 * (total - idle - iowait) / total if user or nice or system else 0.0,
        )


def _cpu_ticks() -> list[int]:
    return [int(field) for field in _read("/proc/stat").splitlines()[0].split()[1:9]]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _chosen(text: str) -> str:
    found = re.search(r"\[(\w+)\]", text)
    return found.group(1) if found else "unknown"


def _git(repository: Path, *arguments: str) -> str:
    result = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def _caches() -> list[str]:
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(str(index / name)).strip() for name in ("level", "type", "size"))
        if level and kind and size:
            found.append(f"L{level} {kind.lower()} {size}")
    return found


def _tlb() -> list[str]:
    """The processor's translation buffers, by cpuid: leaf 0x18 (Intel) or 0x80000005 and 6 (AMD)."""
    if platform.machine() != "x86_64":
        return []
    try:
        cpuid = _Cpuid()
    except (OSError, ValueError):  # a kernel that allows no executable memory
        return []
    if cpuid(0)[0] >= 0x18 and (found := _tlb_intel(cpuid)):
        return found
    if cpuid(0x80000000)[0] >= 0x80000006:
        _, l1_pages, _, _ = cpuid(0x80000005)
        _, l2_pages, _, _ = cpuid(0x80000006)
        sizes = [("L1 data", l1_pages >> 16 & 0xFF), ("L2 data", l2_pages >> 16 & 0xFFF)]
        return [f"{name} {entries} entries, 4K pages" for name, entries in sizes if entries]
    return []


def _tlb_intel(cpuid: _Cpuid) -> list[str]:
    kinds = {1: "data", 2: "instruction", 3: "unified", 4: "data (loads)", 5: "data (stores)"}
    pages = ["4K", "2M", "4M", "1G"]
    found = []
    for subleaf in range(cpuid(0x18)[0] + 1):
        _, ebx, ecx, edx = cpuid(0x18, subleaf)
        kind = kinds.get(edx & 0x1F)
        if kind:
            sizes = "/".join(page for bit, page in enumerate(pages) if ebx >> bit & 1)
            found.append(f"L{edx >> 5 & 7} {kind} {(ebx >> 16) * ecx} entries, {sizes} pages")
    return found


class _Cpuid:
    """The cpuid instruction as a call from Python: the kernel shows nothing of the TLB."""

    # push rbx; mov eax,edi; mov ecx,esi; mov r8,rdx; cpuid; mov [r8],eax..edx; pop rbx; ret
    _CODE = bytes.fromhex("5389f889f14989d00fa241890041895804418948084189500c5bc3")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(self._CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(address)

    def __call__(self, leaf: int, subleaf: int = 0) -> tuple[int, int, int, int]:
        out = (ctypes.c_uint32 * 4)()
        self._call(leaf, subleaf, ctypes.cast(out, ctypes.c_void_p))
        return out[0], out[1], out[2], out[3]
