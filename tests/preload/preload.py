"""Programs under LD_PRELOAD=libtslab.so behave as without it, and were really served by it.

    preload.py TEST LIBRARY [ARGUMENT]

TEST is one of the functions below whose names begin with test_ (without that prefix). Every process that a test starts
under the library writes its statistics at exit (TSLAB_STATS_AT_EXIT), and the test reads there how much it was served.
"""

import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CPYTHON_TESTS = ["test_dict", "test_list", "test_threading", "test_subprocess"]


class Failure(Exception):
    """What does not hold, in one line."""


def preloaded(library: Path, stats: Path) -> dict[str, str]:
    return {**plain(), "LD_PRELOAD": str(library), "TSLAB_STATS_AT_EXIT": str(stats)}


def plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("TSLAB_")}


def allocations(stats: Path) -> int:
    """How many allocations the process that wrote `stats` was served."""
    if not stats.exists():
        raise Failure(f"no statistics in {stats}: the library was not loaded, or did not see the exit")
    for line in stats.read_text().splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "allocations":
            return int(words[1])
    raise Failure(f"no line 'allocations N' in {stats}")


def require_served(stats: Path, least: int, who: str) -> int:
    served = allocations(stats)
    if served < least:
        raise Failure(f"{who}: {served} allocations served, expected at least {least}")
    return served


# ---- the same output -------------------------------------------------------------------------------------------------

PYTHON_LINES = """
import collections, json, re, threading, zlib
words = [format(i * 2654435761 % 2**32, 'x') for i in range(200000)]
index = collections.defaultdict(list)
for word in words: index[word[:3]].append(word)
threads = [threading.Thread(target=lambda n=n: sorted(words[n::4])) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
text = json.dumps(index, sort_keys=True)
print(len(text), zlib.crc32(zlib.compress(text.encode())), len(re.findall('a+', text)))
"""

SQL_LINES = """
create table t(id integer primary key, word text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000)
  insert into t select i, hex(i * 7919) || 'x' from n;
create index w on t(word);
delete from t where id % 3 = 0;
select count(*), sum(length(word)), max(word) from t;
select substr(word, 1, 2) as p, count(*) from t group by p order by p limit 5;
"""

PERL_LINES = """
my %h; for my $i (1..100000) { $h{$i * 7919 % 65537} .= chr(97 + $i % 26) x ($i % 40) }
my $s = join '', map { $h{$_} } sort { $a <=> $b } keys %h; print length($s), ' ', unpack('%32C*', $s), "\\n";
"""

SHELL_LINES = """
x=; for i in {1..3000}; do x+=$i,; a[i % 100]=$x; done; echo ${#x} ${#a[@]} ${#a[7]}
"""

SAME_OUTPUT: list[tuple[str, list[str], str, int]] = [  # program, arguments, standard input, least allocations served
    ("ls", ["-lR", "/usr/include"], "", 100),
    ("bash", ["-c", SHELL_LINES + "exit 7"], "", 1000),
    ("sort", ["-u"], "\n".join(str(i * 7919 % 10007) for i in range(100000)), 10),
    ("perl", ["-e", PERL_LINES], "", 10000),
    ("sqlite3", [":memory:"], SQL_LINES, 10000),
    ("python3", ["-c", PYTHON_LINES], "", 1000),
]


def test_same_output(library: Path, scratch: Path) -> None:
    for program, arguments, text, least in SAME_OUTPUT:
        path = shutil.which(program)
        if path is None:
            raise Failure(f"{program} is not installed; install it, for example: apt-get install {program}")
        stats = scratch / program
        without, under = (
            subprocess.run([path, *arguments], input=text, env=environment, capture_output=True, text=True)
            for environment in (plain(), preloaded(library, stats))
        )
        for what in ("returncode", "stdout", "stderr"):
            expected, actual = getattr(without, what), getattr(under, what)
            if actual != expected:
                raise Failure(f"{program}: {what} is {actual!r:.300}, not {expected!r:.300}")
        served = require_served(stats, least, program)
        print(f"{program}: the same {len(under.stdout)} bytes, {served} allocations served")


# ---- resident memory -------------------------------------------------------------------------------------------------


def asleep(program: Path, environment: dict[str, str], table: str) -> str:
    """A table of /proc/PID of the program while it sleeps, read from outside, so that neither we nor its launcher count.

    At fixed addresses, where they can be had: what the kernel maps of libc around a page that is touched depends on where
    64 KiB begin, and varies by 500 KiB with random ones.
    """
    pipe = subprocess.PIPE
    fixed = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], check=False).returncode == 0 else []
    with subprocess.Popen([*fixed, program], env=environment, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin and child.stdout
        if child.stdout.readline() != "ready\n":
            raise Failure(f"{program.name} did not start")
        text = Path(f"/proc/{child.pid}/{table}").read_text()
        child.stdin.close()
    return text


def sleeping_kib(program: Path, environment: dict[str, str]) -> dict[str, int]:
    rows = (line.split() for line in asleep(program, environment, "smaps_rollup").splitlines()[1:])
    return {row[0].rstrip(":"): int(row[1]) for row in rows}


def code_kib(program: Path, environment: dict[str, str], library: Path) -> list[int]:
    """Resident KiB of each mapping of the library's code, in the order of addresses."""
    mappings = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", asleep(program, environment, "smaps"))
    ours = [m for m in mappings if library.resolve().name in m and " r-xp " in m.splitlines()[0]]
    return [int(found[1]) for m in ours if (found := re.search(r"^Rss:\s+(\d+) kB", m, re.MULTILINE))]


def test_idle(library: Path, scratch: Path, program: Path) -> None:
    stats = scratch / "stats"
    sleeping_kib(program, preloaded(library, stats))
    require_served(stats, 3, program.name)
    idle = {name: value for name, value in preloaded(library, stats).items() if name != "TSLAB_STATS_AT_EXIT"}
    runs = [(sleeping_kib(program, plain()), sleeping_kib(program, idle)) for _ in range(31)]
    medians: dict[str, tuple[float, float]] = {}
    for what in ("Rss", "Pss", "Private_Dirty"):
        medians[what] = (statistics.median(r[0][what] for r in runs), statistics.median(r[1][what] for r in runs))
        print(f"{what}: {medians[what][0]:.0f} KiB with glibc, {medians[what][1]:.0f} KiB with tslab")
    code = code_kib(program, idle, library)
    if len(code) != 2 or code[1] != 0:
        raise Failure(f"code of the library: {code} KiB resident; the second mapping (cmake/rare.ld) is for what is rare")
    glibc, tslab = medians["Rss"]
    if tslab > glibc + 256:
        raise Failure(f"an idle process is {tslab - glibc:.0f} KiB larger than with glibc; the bar is 256 KiB")


def test_burst(library: Path, scratch: Path, program: Path) -> None:
    stats = scratch / "stats"
    run = subprocess.run([program], env=preloaded(library, stats), check=True, capture_output=True, text=True)
    start, peak, after = (int(word) for word in run.stdout.split())
    served = require_served(stats, 10000, program.name)
    print(f"{served} allocations; resident {start >> 10} KiB, at most {peak >> 10}, two seconds after {after >> 10}")
    if peak < start + (200 << 20):
        raise Failure("the burst did not reach 200 MiB")
    if after > start + (2 << 20):
        raise Failure(f"{(after - start) >> 10} KiB did not go back; the bar is 2048 KiB")


# ---- CPython's own tests ---------------------------------------------------------------------------------------------


def python_with_tests() -> str:
    modules = ", ".join(f"test.{module}" for module in CPYTHON_TESTS)
    for name in ("/usr/bin/python3", "python3"):
        if path := shutil.which(name):
            found = subprocess.run(
                [path, "-c", f"import sys, {modules}; print(sys.executable)"], capture_output=True, text=True
            )
            if found.returncode == 0:
                return found.stdout.strip()
    raise Failure("no python3 with its test package; install it, for example: apt-get install libpython3-testsuite")


def failed_tests(run: subprocess.CompletedProcess[str]) -> set[str]:
    return {line for line in run.stderr.splitlines() if line.startswith(("FAIL: ", "ERROR: "))}


def test_cpython(library: Path, scratch: Path) -> None:
    python = python_with_tests()
    for module in CPYTHON_TESTS:
        stats = scratch / module
        command = [python, "-m", "unittest", "-q", f"test.{module}"]

        def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
            settings = {**environment, "PYTHONMALLOC": "malloc"}
            return subprocess.run(command, env=settings, cwd=scratch, capture_output=True, text=True)

        under = run(preloaded(library, stats))
        served = require_served(stats, 10000, module)
        excused = ""
        if under.returncode != 0:
            # A machine's own site packages can break a test; what fails with glibc too is not ours, but is said.
            without = failed_tests(run(plain()))
            if not failed_tests(under) or failed_tests(under) - without:
                raise Failure(f"{module}, which with glibc fails only {sorted(without)}:\n{under.stderr[-6000:]}")
            excused = f"; with glibc too: {', '.join(sorted(failed_tests(under)))}"
        summary = under.stderr.strip().splitlines()
        ran = next((line for line in summary if line.startswith("Ran ")), "").split(" in ")[0]
        print(f"{module}: {ran}, {summary[-1]}, {served} allocations served{excused}", flush=True)


# ---- a compiler ------------------------------------------------------------------------------------------------------


def compile_once(entry: dict[str, str], output: Path, environment: dict[str, str], wrapper: list[str]) -> bytes:
    """The object file that the entry's command makes, written to `output` instead."""
    words = shlex.split(entry["command"])
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in ("-MD", "-MMD"):
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        else:
            kept.append(word)
    subprocess.run([*kept, *wrapper, "-o", str(output)], cwd=entry["directory"], env=environment, check=True)
    return output.read_bytes()


def test_compiler(library: Path, scratch: Path, build: Path) -> None:
    entries = json.loads((build / "compile_commands.json").read_text())
    sources = [entry for entry in entries if "/src/" in entry["file"] and entry["file"].endswith(".c")]
    if not sources:
        raise Failure(f"no sources of ours in {build}/compile_commands.json")
    is_gcc = "clang" not in Path(shlex.split(sources[0]["command"])[0]).name
    # gcc runs the compiler proper as a child: the wrapper gives each child a statistics file named after it.
    child = f'TSLAB_STATS_AT_EXIT="{scratch}/$(basename "$0")" exec "$0" "$@"'
    wrapper = ["-wrapper", f"sh,-c,{child}"] if is_gcc else []
    proper = scratch / ("cc1" if is_gcc else "driver")
    total = 0
    for entry in sources:
        one = compile_once(entry, scratch / "object.o", plain(), [])
        two = compile_once(entry, scratch / "object.o", preloaded(library, scratch / "driver"), wrapper)
        if one != two:
            raise Failure(f"{entry['file']}: the object file differs under the library")
        total += require_served(proper, 1000, "the compiler")
        require_served(scratch / "driver", 10, "the compiler's driver")
        proper.unlink()
    print(f"{len(sources)} sources, identical objects, {total} allocations served")


def main() -> int:
    test = globals().get(f"test_{sys.argv[1]}") if len(sys.argv) > 2 else None
    if test is None:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        try:
            test(Path(sys.argv[2]).absolute(), Path(scratch), *(Path(argument).absolute() for argument in sys.argv[3:]))
        except Failure as failure:
            print(f"failed: {failure}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
