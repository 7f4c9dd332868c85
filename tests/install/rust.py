"""The Rust crates build the C library by themselves, and their tests, formatting and lints are clean.

    rust.py SOURCE_DIRECTORY

Status 77 where cargo is missing. The crates need no other crates, so no registry.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
CHECKS = (
    ("cargo", "test", "--offline"),
    ("cargo", "clippy", "--offline", "--all-targets", "--", "-D", "warnings"),
    ("cargo", "fmt", "--check"),
)


def main() -> int:
    if shutil.which("cargo") is None:
        print("not here: cargo (apt-get install cargo)")
        return SKIPPED
    crates = Path(sys.argv[1]) / "rust"
    with tempfile.TemporaryDirectory(prefix="tslab-rust-") as folder:
        dropped = ("LD_", "TSLAB_", "CMAKE_")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        variables["CARGO_TARGET_DIR"] = folder
        for command in CHECKS:
            if shutil.which(f"cargo-{command[1]}") is None and command[1] != "test":
                print(f"not here: cargo-{command[1]}")
                continue
            done = subprocess.run(command, cwd=crates, env=variables, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
                return 1
            print(" ".join(command), *(line for line in done.stdout.splitlines() if line.startswith("test result")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
