"""For gdb: holds a thread for a moment at the compare-and-swap that takes a slab's free blocks, after its look at them.

Other threads run on, and what they push to the slab meanwhile makes the compare-and-swap fail.
"""

import time
from pathlib import Path

import gdb

HELD_S = 0.005


class Held(gdb.Breakpoint):
    def stop(self) -> bool:
        time.sleep(HELD_S)
        return False


for setting in ("pagination off", "startup-with-shell off", "non-stop on"):
    gdb.execute(f"set {setting}")
gdb.execute("break main")
gdb.execute("run")
Path("held.pid").write_text(f"{gdb.selected_inferior().pid}\n")
for line in gdb.execute("disassemble slab_take", to_string=True).splitlines():
    if "cmpxchg" in line:
        Held("*" + line.split()[0])
gdb.execute("continue -a")
