"""The call sites behind a finding of `tslab doctor`, where the process makes a heap profile."""

from __future__ import annotations

from tslab.looks import Case
from tslab.reporters.quantities import bytes_text
from tslab.sites import by_name, profile_of

SHOWN = 2
LEAST_SHARE = 0.1  # of what grew, or of what is held


def grown_sites(case: Case) -> str:
    """Names the call sites that hold more at the last look than at the first: neither estimate lies in the other's
    interval."""
    first, last = case.looks[0].document, case.found
    if case.name_of is None or len(case.looks) < 2 or not (first.get("profiles") and last.get("profiles")):
        return ""
    old = dict(by_name(profile_of(first), case.name_of))
    grown: dict[str, int] = {}
    for name, site in by_name(profile_of(last), case.name_of):
        before = old.get(name)
        held_before = before.live_bytes if before else 0
        most_before = before.held.most if before and before.held else held_before
        if site.held and held_before < site.held.least and most_before < site.live_bytes:
            grown[name] = site.live_bytes - held_before
    return _told("By the heap profile what grew was allocated at", "more ", grown)


def holding_sites(case: Case, state: int, label: str) -> str:
    """Names the call sites whose blocks the epochs of that label and state hold."""
    if case.name_of is None or not case.found.get("profiles"):
        return ""
    profile, held = profile_of(case.found), dict[str, int]()
    for holder in profile.holders:
        site = profile.site(holder.site)
        if holder.state == state and holder.label == label and site:
            held[case.name_of(site)] = held.get(case.name_of(site), 0) + holder.bytes
    return _told("By the heap profile what such epochs hold was allocated at", "", held)


def _told(begin: str, more: str, sizes: dict[str, int]) -> str:
    least = LEAST_SHARE * sum(sizes.values())
    first = sorted(sizes.items(), key=lambda item: -item[1])[:SHOWN]
    parts = [f"{name}: {bytes_text(size)} {more}".rstrip() for name, size in first if size and size >= least]
    return f" {begin} {'; '.join(parts)}." if parts else ""
