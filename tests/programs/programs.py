#!/usr/bin/env python3
"""Unmodified programs under LD_PRELOAD=libtslab.so do as without it, and were really served by it.

    programs.py LIBRARY [NAME...] [--long] [--set TSLAB_SAMPLE=16] [--keep]
    programs.py --list       what there is, and whether it is installed
    programs.py --missing    the Debian packages to install first, a line each

A row of PROGRAMS below is a program and its load. The load runs twice in the same folder, without the library and under
it. The two passes must give the same standard output, standard error, exit status, files and kept answers, byte for
byte, except for the text that the row's `scrub` names with its reason. Every process that the second pass
starts writes its statistics as it exits; their allocations are summed, and the row says how many there must be. A
process that only forked writes none (what it inherited would be counted twice), so a server runs without workers where
it can. A line of ours on standard error fails the row.

--long is the soak's form: all rows and larger loads. Without it, and without names, only the rows that `./dev test`
takes. A program is added as a row of PROGRAMS, and nowhere else: its packages, and as its load a function that takes a
Pass, or one of those that make such functions of a script.

Exit status: 0 all are the same; 1 some are not; 2 wrong use; 77 nothing failed, but a program is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LEAST = 100_000  # allocations, where a row does not say that its program has fewer
COMMAND_SECONDS = 1800  # after which a program counts as hanging
START_SECONDS = 60  # for a server to listen, or to end


class Failure(Exception):
    """A few lines that say what does not hold."""


# ---- one pass of a load ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Something that both passes must give alike."""

    title: str
    content: str


class Pass:
    """A load runs the programs under test and tools beside them through this, and it keeps the results for comparison.

    `input` holds what the row's `prepare` made, once for both passes; `folder` is empty as each of them begins.
    """

    def __init__(self, base: Path, is_long: bool, preload: dict[str, str]) -> None:
        self.folder = base / "work"
        self.input = base / "input"
        self.is_long = is_long
        self.parts: list[Part] = []
        self.messages: list[str] = []
        self.outside = {name: value for name, value in os.environ.items() if not is_ours(name)}
        # The user's own settings of git, npm and others are not part of the test.
        self.inside = {"PATH": SEARCH, "HOME": str(self.folder), "LC_ALL": "C.UTF-8", "TZ": "UTC", **preload}

    def size(self, short: int, long: int) -> int:
        return long if self.is_long else short

    def run(
        self, *command: str | Path, sent: str = "", env: dict[str, str] | None = None, status: int = 0,
        output: bool = True, errors: bool = True,
    ) -> None:  # fmt: skip
        """Runs a program under test to its end. `output`, `errors`: they must be the same in both passes.

        `status` is what it has to end with where the library is not loaded: another one says that the load is wrong.
        """
        words = [str(word) for word in command]
        done = subprocess.run(
            [found(words[0]), *words[1:]], input=sent.encode(), env={**self.inside, **(env or {})}, cwd=self.folder,
            capture_output=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        said, complained = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        title = shlex.join(words)[:200]
        if done.returncode != status and "LD_PRELOAD" not in self.inside:
            tail = (said + complained)[-1500:]
            raise Failure(f"{title} ends with status {done.returncode} without the library, not {status}:\n{tail}")
        self.keep(f"exit status of {title}", str(done.returncode))
        if output:
            self.keep(f"output of {title}", said)
        if errors:
            self.keep(f"errors of {title}", complained)
        self.look_for_messages(complained)

    def tool(self, *command: str | Path, sent: str = "", env: dict[str, str] | None = None) -> str:
        """Runs a program that only helps, never under the library; it has to succeed."""
        words = [str(word) for word in command]
        where = self.folder if self.folder.exists() else self.input
        done = subprocess.run(
            [found(words[0]), *words[1:]], input=sent.encode(), env={**self.outside, **(env or {})}, cwd=where,
            capture_output=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            tail = (done.stdout + done.stderr).decode(errors="replace")[-1500:]
            raise Failure(f"{shlex.join(words)[:200]} ended with status {done.returncode}, and said:\n{tail}")
        return done.stdout.decode(errors="replace")

    @contextlib.contextmanager
    def serve(
        self, *command: str | Path, ready: Callable[[], object], stop: Callable[[int], object], tested: bool = True
    ) -> Iterator[int]:
        """Runs a server while the caller's block lasts. `stop` gets its process id."""
        words = [str(word) for word in command]
        log = self.folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # it must not outlive the test, however that ends
                [found("setpriv"), "--pdeathsig", "KILL", "--", found(words[0]), *words[1:]], cwd=self.folder,
                env=self.inside if tested else self.outside, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + START_SECONDS
            while not succeeds(ready):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Failure(f"{words[0]} did not start, and said:\n{log.read_text(errors='replace')[-1500:]}")
                time.sleep(0.02)
            yield process.pid
            stop(process.pid)
            status = process.wait(timeout=START_SECONDS)
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
            said = log.read_text(errors="replace")[-1500:]
            raise Failure(f"{words[0]} does not answer: {error}; status {process.poll()}, it said:\n{said}") from error
        finally:
            process.kill()
            process.wait()
        if tested:
            self.keep(f"exit status of {words[0]}", str(status))
            self.look_for_messages(log.read_text(errors="replace"))

    def keep(self, title: str, content: str | bytes) -> None:
        text = content if isinstance(content, str) else content.decode("latin-1")
        self.parts.append(Part(title, text))

    def keep_file(self, path: Path) -> None:
        self.keep(str(path.relative_to(self.folder)), path.read_bytes() if path.exists() else "there is none")

    def look_for_messages(self, errors: str) -> None:
        self.messages += [line for line in errors.splitlines() if "tslab: " in line]


Load = Callable[[Pass], None]


@dataclass(frozen=True)
class Program:
    """A row. `needs` are words as `./dev` takes them: the program, or a file as a pattern, = the Debian package that
    brings it, which may be left out where it has the same name."""

    name: str
    needs: str
    load: Load
    prepare: Load | None = None
    least: int = LEAST  # allocations in the short form; fewer where the program has no more, whatever the load
    scrub: tuple[tuple[str, str], ...] = ()  # patterns of text that differs from run to run, and why
    in_test: bool = True  # `./dev test` runs it
    is_light: bool = False  # `./dev test` installs it


def is_ours(variable: str) -> bool:
    return variable == "LD_PRELOAD" or variable.startswith("TSLAB_")


def succeeds(action: Callable[[], object]) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException, Failure):
        return bool(action())
    return False


def find(program: str) -> str | None:
    """The system's own program before one that a user has put in front of it; the newest file that fits a pattern."""
    if program.startswith("/"):
        return max((str(path) for path in Path("/").glob(program[1:])), default=None)
    return shutil.which(program, path=SEARCH) or shutil.which(program)


def found(program: str) -> str:
    path = find(program)
    if path is None:
        raise Failure(f"{program} is not installed")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def interrupt(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def quit_gently(pid: int) -> None:
    os.kill(pid, signal.SIGQUIT)


def reader(program: str, *options: str, short: int, long: int, text: str) -> Load:
    """The same for a program that reads its standard input."""

    def load(run: Pass) -> None:
        run.run(program, *options, sent=text.replace("COUNT", str(run.size(short, long))))

    return load


def script(program: str, option: str, short: int, long: int, text: str, status: int = 0) -> Load:
    """A load that is one program in the program's own language, where COUNT stands for its size."""

    def load(run: Pass) -> None:
        run.run(program, option, text.replace("COUNT", str(run.size(short, long))), status=status)

    return load


# ---- programs in their own languages ---------------------------------------------------------------------------------

PYTHON = """
import collections, json, re, threading, zlib
words = [format(i * 2654435761 % 2**32, 'x') for i in range(COUNT)]
index = collections.defaultdict(list)
for word in words: index[word[:3]].append(word)
threads = [threading.Thread(target=lambda n=n: sorted(words[n::4])) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
text = json.dumps(index, sort_keys=True)
print(len(text), zlib.crc32(zlib.compress(text.encode())), len(re.findall('a+', text)))
"""

NUMPY = """
import numpy as np
total = 0.0
for i in range(1, COUNT):
    a = np.arange(i % 500 + 1, dtype=np.float64)
    total += float((a * 2.0 + 1.0)[::3].sum())
m = np.arange(90000, dtype=np.int64).reshape(300, 300) % 97
s = np.array(['x' * (i % 30) for i in range(2000)])
print(total, (m @ m).sum(), np.sort(m, axis=None)[::1000].tolist(), np.unique(s).size)
"""

PERL = r"""
my %h; for my $i (1 .. COUNT) { $h{$i * 7919 % 65537} .= chr(97 + $i % 26) x ($i % 40) }
my @parts = map { [$_, length $h{$_}] } sort { $a <=> $b } keys %h;
my $s = join '', map { $h{$_->[0]} } @parts; (my $t = $s) =~ s/(a+)(b+)/$2$1/g;
my @closures = map { my $n = $_; sub { $n += shift } } 1 .. 10000; $_->(3) for @closures;
print length($s), ' ', unpack('%32C*', $t), ' ', scalar(split /c/, $t), "\n"; exit 3
"""

LUA = """
local t, parts = {}, {}
for i = 1, COUNT do t['k' .. i * 7919 % 65537] = {i, string.rep('x', i % 40)} end
for k, v in pairs(t) do parts[#parts + 1] = k .. '=' .. v[1] .. v[2] end
table.sort(parts)
local s = table.concat(parts, ','):gsub('x+y?', function(m) return #m end)
local co = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield({i}) end end)
for i = 1, 1000 do co() end
print(#parts, #s, s:sub(1, 60))
"""

NODE = """
const zlib = require('zlib'), crypto = require('crypto'), { Worker } = require('worker_threads');
const map = new Map();
for (let i = 0; i < COUNT; i++) map.set('k' + i * 7919 % 65537, Buffer.from('x'.repeat(i % 50) + i));
const text = JSON.stringify([...map].map(([k, v]) => [k, v.toString('hex')]));
const packed = zlib.gzipSync(text), hash = crypto.createHash('sha256').update(zlib.gunzipSync(packed)).digest('hex');
console.log(map.size, text.length, hash);
const worker = new Worker(`const { parentPort } = require('worker_threads'); let s = 0;
  for (let i = 0; i < 50000; i++) s += Buffer.alloc(i % 3000).length; parentPort.postMessage(s);`, { eval: true });
worker.on('message', (sum) => { console.log(sum); process.exitCode = 4; });
"""

RUBY = """
h = {}; COUNT.times { |i| (h["k#{i * 7919 % 65537}"] ||= []) << 'x' * (i % 90) }
s = h.sort.map { |k, v| k + v.join('-') }.join(','); t = Thread.new { s.scan(/x+/).map(&:size).sum }
puts h.size, s.size, t.value, s.gsub(/k(\\d)/) { $1 * 2 }.hash == 0, Marshal.load(Marshal.dump(h)).size; exit 5
"""

PHP = """
ini_set('memory_limit', '-1'); $a = [];
for ($i = 0; $i < COUNT; $i++) $a['k' . $i * 7919 % 65537] = [$i, str_repeat('x', $i % 50)];
ksort($a); $s = json_encode($a); $d = new DOMDocument(); $r = $d->appendChild($d->createElement('r'));
foreach (array_slice($a, 0, 20000) as $k => $v) $r->appendChild($d->createElement($k, $v[1]));
$x = new SimpleXMLElement($d->saveXML());
echo count($a), ' ', strlen($s), ' ', md5($s), ' ', $x->count(), ' ', md5($d->saveXML()), ' ',
  preg_match_all('/x+/', $s), PHP_EOL; exit(6);
"""

BASH = """
x=; for i in {1..COUNT}; do x+=$i,; a[i % 100]=$x; x=${x: -200}; done; echo ${#x} ${#a[@]} ${#a[7]} ${x//1,/-}
f() { local -A m; for w in $1; do m[$w]+=.; done; echo ${#m[@]}; }; f "${a[*]//,/ }"; exit 7
"""

GAWK = """
BEGIN { for (i = 0; i < COUNT; i++) { k = i * 7919 % 65537; a["k" k] = a["k" k] i "," }
  n = asorti(a, b); for (i = 1; i <= n; i++) { s = gensub(/([0-9]),/, "\\\\1;", "g", a[b[i]]); t += length(s) }
  print n, t, b[5], toupper(substr(a[b[7]], 1, 40)); exit 8 }
"""

JQ = """
[range(COUNT) | {key: "k\\(. * 7919 % 65537)", value: [., (. | tostring)]}] | from_entries
| (to_entries | map(select(.value[0] % 3 == 0)) | length), (keys | .[0:5]), (map(.[1] | length) | add)
"""

BC = "scale = 60; for (i = 1; i <= COUNT; ++i) { s += sqrt(i) * 2 / (i + 1) }; s\n2 ^ 5000 % 10 ^ 50\n"

SQL = """
create table t(id integer primary key, word text, extra blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < COUNT)
  insert into t select i, hex(i * 7919) || 'x', zeroblob(i % 50) from n;
create index w on t(word);
delete from t where id % 3 = 0;
select count(*), sum(length(word)), max(word) from t;
select substr(word, 1, 2) as p, count(*), group_concat(id % 7, '') like '1%' from t group by p order by p;
select json_group_array(word) from (select word from t order by id desc limit 1000);
update t set word = upper(word) || id where id % 5 = 0;
select sum(length(replace(word, 'A', 'bb'))), count(distinct word) from t;
vacuum; pragma integrity_check;
"""

POSTGRES = (
    "create table t(id int primary key, word text, extra jsonb);\n"
    "insert into t select i, md5(i::text), jsonb_build_object('k', i, 'l', array[i, i + 1]) "
    "from generate_series(1, COUNT) i;\n"
    "create index on t(word);\n"
    "select count(*), sum(length(word)), max(word), sum((extra->>'k')::int) from t;\n"
    "select left(word, 1) p, count(*), md5(string_agg(word, ',' order by id)) from t group by p order by p;\n"
    + "".join(f"select x.word from t x join t y on x.id = y.id + {i} where y.id < 9 order by 1;\n" for i in range(200))
)


# ---- loads of more than a script -------------------------------------------------------------------------------------


def cpython(module: str, *short: str, in_test: bool = True, output: bool = True) -> Program:
    """One of CPython's own test modules, with all its memory from malloc.

    Each test's outcome goes to standard error, and the text that the tests print to `output`. `short` names the classes
    of the short form; without them, it runs all.
    """
    version = Path(find("/usr/bin/python3") or "python3").resolve().name

    def load(run: Pass) -> None:
        classes = [] if run.is_long else short
        names = [f"test.test_{module}.{name}" for name in classes] or [f"test.test_{module}"]
        run.run("/usr/bin/python3", "-m", "unittest", "-v", *names, env={"PYTHONMALLOC": "malloc"}, output=output)

    return Program(
        f"cpython.{module}",
        f"/usr/bin/python3=python3 /usr/lib/{version}/test/test_{module}*=lib{version}-testsuite",
        load, scrub=((r"(?<= in )\d+\.\d+s$", "how long it took"),), in_test=in_test, is_light=True,
    )  # fmt: skip


def redis_cli(run: Pass, *words: str, sent: str = "") -> str:
    return run.tool("redis-cli", "-s", run.folder / "socket", *words, sent=sent)


def redis(run: Pass) -> None:
    options = (
        "--port 0 --unixsocket socket --save '' --appendonly no --jemalloc-bg-thread no --enable-debug-command yes"
    )
    server = run.folder / "redis-server"  # Debian's is one program with the checker, and goes by its name
    server.symlink_to(find("redis-server") or found("redis-check-rdb"))
    with run.serve(
        server, *shlex.split(options), ready=lambda: "PONG" in redis_cli(run, "ping"),
        stop=lambda _: run.tool("redis-cli", "-s", run.folder / "socket", "shutdown", "nosave"),
    ):  # fmt: skip
        requests, kinds = str(run.size(20_000, 500_000)), "set,get,incr,lpush,rpush,lpop,rpop,hset,zadd,lrange_100,mset"
        for kind in kinds.split(","):
            few = requests if not kind.startswith("lrange") else str(run.size(1000, 20_000))
            run.tool(
                "redis-benchmark", "-s", run.folder / "socket", "-t", kind, "-n", few, "-P", "16", "-d", "100", "-q"
            )
        keys = range(run.size(20_000, 300_000))
        redis_cli(run, "--pipe", sent="".join(f"SET k:{k} {'v' * (k * 7 % 900 + 1)}\r\n" for k in keys))
        redis_cli(run, "--pipe", sent="".join(f"APPEND k:{k} {'w' * (k % 70 + 1)}\r\n" for k in keys if k % 3 == 0))
        redis_cli(run, "--pipe", sent="".join(f"DEL k:{k}\r\n" for k in keys if k % 2 == 0))
        for question in (
            "dbsize",
            "debug digest",
            "get counter:__rand_int__",
            "llen mylist",
            "strlen k:777",
            "get k:99",
        ):
            run.keep(question, redis_cli(run, *question.split()))


NGINX = """
daemon off; PROCESSES; pid nginx.pid; error_log stderr warn;
events { worker_connections 512; }
http {
  access_log off; gzip on; gzip_min_length 100; gzip_types text/plain; gzip_vary on;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server {
    LISTEN
    root ROOT;
    location /echo/ { return 200 "$uri $args $http_x_word $remote_user"; }
    location /moved/ { rewrite ^/moved/(.*)$ /$1 redirect; }
    location /again/ { rewrite ^/again/(\\d+)$ /$1.txt last; }
  }
}
"""


def nginx_folder(run: Pass) -> None:
    for number in range(50):
        lines = (f"line {line} of {number}\n" for line in range(number * 20))
        (run.input / f"{number}.txt").write_text("".join(lines))


def nginx(run: Pass) -> None:
    """Plain HTTP on a port, for wrk knows no sockets: by workers, which a reload replaces, then by one process."""
    port = free_port()
    text = NGINX.replace("LISTEN", f"listen 127.0.0.1:{port};").replace("ROOT", str(run.input))
    server = ("nginx", "-p", run.folder, "-c", "nginx.conf", "-e", "stderr")

    def ask(path: str, header: str = "") -> str:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
        connection.request("GET", path, headers=dict([header.split(": ")]) if header else {})
        answer = connection.getresponse()
        fields = [f"{name}: {value}" for name, value in answer.getheaders() if name != "Date"]  # it differs
        body = answer.read().decode("latin-1")
        connection.close()
        return "\n".join([str(answer.status), *fields, "", body]).replace(str(port), "PORT")  # so does this

    def keep_answers() -> None:
        for words in (
            ("/0.txt",), ("/9.txt",), ("/9.txt", "Accept-Encoding: gzip"), ("/40.txt", "Range: bytes=100-2000"),
            ("/echo/a?b=c", "X-Word: yes"), ("/moved/9.txt",), ("/again/7",), ("/none",), ("/..%2f..%2fetc",),
        ):  # fmt: skip
            run.keep(f"GET {words[0]}", ask(*words))

    (run.folder / "nginx.conf").write_text(text.replace("PROCESSES", "worker_processes 2"))
    with run.serve(*server, ready=lambda: ask("/0.txt"), stop=quit_gently) as pid:
        keep_answers()
        os.kill(pid, signal.SIGHUP)
        keep_answers()
    (run.folder / "nginx.conf").write_text(text.replace("PROCESSES", "master_process off"))
    with run.serve(*server, ready=lambda: ask("/0.txt"), stop=quit_gently):
        keep_answers()
        for path, *headers in (("/49.txt", "Accept-Encoding: gzip"), ("/9.txt", "Connection: close"), ("/none",)):
            flags = [f"-H{header}" for header in headers]
            requests = 0
            while requests < run.size(15_000, 200_000):  # wrk knows seconds, not requests
                said = run.tool("wrk", "-t1", "-c16", "-d1s", *flags, f"http://127.0.0.1:{port}{path}")
                made = re.search(r"(\d+) requests in", said)
                if not made or "Socket errors" in said or ("Non-2xx" in said) != (path == "/none"):
                    raise Failure(f"wrk {path}: {said}")
                requests += int(made[1])


def certificate(run: Pass) -> None:
    run.tool(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", run.input / "key", "-out",
        run.input / "certificate", "-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
    )  # fmt: skip


def curl_folder(run: Pass) -> None:
    nginx_folder(run)
    certificate(run)


def curl(run: Pass) -> None:
    """TLS to the nginx, which runs as it is, through a socket in the folder: no port to be had."""
    keys = f"ssl_certificate {run.input}/certificate; ssl_certificate_key {run.input}/key;"
    text = NGINX.replace("LISTEN", f"listen unix:{run.folder}/socket ssl http2; {keys}").replace("ROOT", str(run.input))
    (run.folder / "nginx.conf").write_text(text.replace("PROCESSES", "master_process off"))
    common = ("curl", "-sS", "--unix-socket", run.folder / "socket", "--cacert", run.input / "certificate")
    server = ("nginx", "-p", run.folder, "-c", "nginx.conf", "-e", "stderr")
    with run.serve(*server, ready=(run.folder / "socket").exists, stop=quit_gently, tested=False):
        run.run(*common, "-L", "https://localhost/moved/[1-49].txt")
        run.run(
            *common,
            "--compressed",
            "-w",
            "%{http_code} %{size_header}\n",
            f"https://localhost/echo/[1-{run.size(300, 3000)}]",
        )
        run.run(*common, "--http1.1", "-f", "https://localhost/none", status=22)
        for _ in range(run.size(5, 40)):  # a process, and a handshake, for each
            run.run(
                *common,
                "--no-progress-meter",
                "-Z",
                "--parallel-max",
                "8",
                "-o",
                "#1.txt",
                "https://localhost/[0-49].txt",
            )
        for number in range(50):
            run.keep_file(run.folder / f"{number}.txt")


def own_sources(run: Pass) -> None:
    """A copy of the project's C sources: those in the tree may be edited while the test runs."""
    for name in ("src", "include"):
        shutil.copytree(PROJECT / name, run.input / name, ignore=shutil.ignore_patterns(".*"))


def c_compiler(run: Pass) -> None:
    flags = (
        "-std=gnu17",
        "-D_GNU_SOURCE",
        '-DTSLAB_BUILD="x"',
        "-DTSLAB_CHECK_LEVEL=2",
        "-DTSLAB_TELEMETRY=1",
        "-fPIC",
    )
    folders = (f"-I{run.input}/src", f"-I{run.input}/include")
    sources = sorted(run.input.glob("src/*/*.c"), key=lambda path: path.name)
    for source in sources if run.is_long else sources[:: len(sources) // 3]:
        run.run("gcc", *flags, "-O2", "-g", *folders, "-c", source, "-o", "object.o")
        run.keep_file(run.folder / "object.o")


def templates(compiler: str) -> Load:
    def load(run: Pass) -> None:
        flags = ("-std=c++17", "-O2" if run.is_long else "-O0", f"-DDEPTH={run.size(12, 100)}")
        run.run(compiler, *flags, HERE / "templates.cc", "-o", "templates")
        run.keep_file(run.folder / "templates")
        run.run(run.folder / "templates", status=9)

    return load


def c_project(run: Pass) -> None:
    """Forty small sources, a library, a program and a test, for cmake and ninja."""
    names = [f"part{number}" for number in range(40)]
    for name in names:
        (run.input / f"{name}.c").write_text(f'#include <stdio.h>\nint {name}(int x) {{ return printf("%d", x); }}\n')
    calls = "".join(f"  sum += {name}(sum);\n" for name in names)
    declared = "".join(f"int {name}(int);\n" for name in names)
    (run.input / "main.c").write_text(f"{declared}int main(void) {{\n  int sum = 1;\n{calls}  return sum & 1;\n}}\n")
    (run.input / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(tiny C)\n"
        "include(CheckFunctionExists)\nforeach(f malloc fork nothing_of_this_name)\n"
        "  check_function_exists(${f} has_${f})\n"
        "endforeach()\nfind_package(Threads REQUIRED)\n"
        f"add_library(parts STATIC {' '.join(f'{name}.c' for name in names)})\n"
        "set(all)\nforeach(i RANGE 1 3000)\n  list(APPEND all item${i})\n"
        '  string(REGEX REPLACE "m(.)" "n\\\\1" x item${i})\n'
        "endforeach()\nlist(LENGTH all count)\nmessage(STATUS \"${count} ${x}\")\n"
        "add_executable(tiny main.c)\ntarget_link_libraries(tiny parts Threads::Threads)\n"
        "enable_testing()\nadd_test(NAME tiny COMMAND tiny)\n"
    )  # fmt: skip


def cmake(run: Pass) -> None:
    run.run("cmake", "-S", run.input, "-B", "built", "-G", "Ninja")
    run.keep_file(run.folder / "built/build.ninja")
    run.keep_file(run.folder / "built/CMakeCache.txt")
    run.run("cmake", "-S", run.input / "none", "-B", "none", status=1)


def ninja(run: Pass) -> None:
    run.tool("cmake", "-S", run.input, "-B", run.folder / "built", "-G", "Ninja")
    run.run("ninja", "-C", "built", "-j2", "--quiet")  # commands end in any order, but are not printed
    run.run("ninja", "-C", "built")
    run.run("ninja", "-C", "built", "-t", "targets", "all")
    run.run("ninja", "-C", "built", "no_such_target", status=1)
    run.keep_file(run.folder / "built/tiny")


def repository(run: Pass) -> None:
    """A history that edits the project's own sources a line at a time, on two branches that are merged."""
    texts = {path.name: path.read_text().splitlines() for path in sorted(PROJECT.glob("src/*/*.[ch]"))}
    names, stream = sorted(texts), []
    for commit in range(run.size(300, 2000)):
        changed = [names[(commit * 31 + step * 17) % len(names)] for step in range(3)] if commit else names
        files = []
        for name in changed:
            lines = texts[name]
            lines.insert((commit * 7919) % (len(lines) + 1), f"/* {commit} {'x' * (commit % 60)} */")
            text = "\n".join(lines)
            files.append(f"M 644 inline {name[:1]}/{name}\ndata {len(text.encode())}\n{text}\n")
        branch = "side" if commit % 50 in range(20, 30) else "main"
        begins = "from refs/heads/main\n" if commit % 50 == 20 else ""
        merges = f"merge :{commit}\n" if commit and commit % 50 == 30 else ""
        note = f"change {commit}"
        stream.append(
            f"commit refs/heads/{branch}\nmark :{commit + 1}\n"
            f"committer A <a@example.org> {1_600_000_000 + commit * 60} +0000\n"
            f"data {len(note)}\n{note}\n{begins}{merges}{''.join(files)}\n"
        )
    run.tool("git", "init", "-q", "-b", "main", run.input / "origin")
    run.tool("git", "-C", run.input / "origin", "fast-import", "--quiet", sent="".join(stream))


def git(run: Pass) -> None:
    run.run("git", "clone", "-q", "--no-local", run.input / "origin", "copy")
    for words in (
        "config pack.threads 2", "log --stat --all --format=%H%n%s", "checkout -q -b work HEAD~40",
        "merge-tree HEAD main",
        "merge -q main", "blame -s h/heap.c", "grep -c return", "gc --quiet --aggressive", "fsck --full --strict",
        "rev-list --all --objects", "diff HEAD~30 --stat",
    ):  # fmt: skip
        run.run("git", "-C", "copy", *words.split())
    run.run("git", "-C", "copy", "checkout", "no_such_branch", status=1)
    run.run("git", "clone", "-q", "--bare", "--depth", "20", f"file://{run.folder}/copy", "shallow")
    run.run("git", "-C", "shallow", "fsck")


def npm_packages(run: Pass) -> None:
    """A package that needs eleven others, which lie beside it."""
    for number in range(12):
        package = run.input / f"package{number}"
        package.mkdir()
        needs = {f"package{other}": f"file:../package{other}" for other in range(1, 12) if number == 0}
        text = {"name": package.name, "version": f"1.{number}.0", "main": "a.js", "dependencies": needs}
        (package / "package.json").write_text(json.dumps(text))
        (package / "a.js").write_text(f"module.exports = {number};\n" * 200)


def npm(run: Pass) -> None:
    """Without a registry."""
    flags = ("--offline", "--no-audit", "--no-fund", "--no-update-notifier")
    shutil.copytree(run.input, run.folder / "packages")
    for words in (
        "install",
        "ls --all",
        "pack --json ./packages/package0",
        "pkg get",
        "explain package3",
        "run no_such_script",
    ):
        status = 1 if words.startswith("run") else 0
        run.run("npm", *words.split(), *flags, "--prefix", "packages/package0", status=status)
    run.keep_file(run.folder / "packages/package0/package-lock.json")


def numbers(run: Pass) -> None:
    lines = (f"{i * 7919 % 100_003} {i:x}\n" for i in range(run.size(150_000, 1_000_000)))
    (run.input / "numbers").write_text("".join(lines))


def small_files(run: Pass) -> None:
    for number in range(run.size(3000, 15_000)):
        file = run.input / f"d{number % 60}" / f"file{number}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"line of {number}\n" * (number % 90))
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))


def sort(run: Pass) -> None:
    for options in ("-k2", "-n", "-u -k1,1"):
        run.run("sort", *options.split(), "-S1M", "--parallel=2", run.input / "numbers")


def xz(run: Pass) -> None:
    run.run("xz", "-T2", "-2", "-k", "--block-size=256KiB", "-c", run.input / "numbers")
    run.tool("sh", "-c", f"xz -2 -c {run.input}/numbers > all.xz; cp -r {run.input}/small .")
    run.run("xz", "-T2", "-d", "-k", "-c", "all.xz")
    run.run("xz", "-t", "-v", "all.xz", output=False, errors=False)  # it tells how long it took
    files = sorted(path.relative_to(run.folder) for path in run.folder.glob("small/*"))
    run.run("xz", "-0", *files)
    run.run("xz", "-l", *(f"{file}.xz" for file in files))
    run.run("xz", "-d", "none", status=1)


def xz_files(run: Pass) -> None:
    numbers(run)
    (run.input / "small").mkdir()
    for number in range(run.size(300, 2000)):
        (run.input / f"small/{number}").write_text(f"{number * 7919} " * (number % 100 + 1))


def zstd(run: Pass) -> None:
    run.run("zstd", "-q", "-T2", "-9", run.input / "numbers", "-o", "numbers.zst")
    run.run("zstd", "-q", "-d", "-c", "numbers.zst")
    run.run("zstd", "-q", "--train", *sorted(run.input.glob("small/*")), "-o", "dictionary")
    run.run("zstd", "-q", "-D", "dictionary", "--output-dir-flat", ".", *sorted(run.input.glob("small/*")))
    run.keep_file(run.folder / "numbers.zst")
    run.keep_file(run.folder / "99.zst")


def openssl(run: Pass) -> None:
    key, one = run.input / "key", run.input / "certificate"
    bundle = run.folder / "bundle"
    bundle.write_text(one.read_text() * run.size(150, 2000))
    run.run("openssl", "crl2pkcs7", "-nocrl", "-certfile", bundle, "-out", "bundle.p7")
    run.run("openssl", "pkcs7", "-in", "bundle.p7", "-print_certs", "-text", "-noout")
    run.run("openssl", "verify", "-CAfile", one, *[one] * run.size(20, 500))
    run.run("openssl", "enc", "-aes-256-cbc", "-pbkdf2", "-S", "0011223344556677", "-k", "word", "-a", "-in", bundle)
    run.run("openssl", "dgst", "-sha256", "-sign", key, "-hex", bundle)
    run.run("openssl", "list", "-cipher-algorithms", "-digest-algorithms", "-public-key-algorithms")
    run.run("openssl", "x509", "-in", "bundle.p7", status=1)


def rust_program(run: Pass) -> None:
    run.tool("rustc", "--edition", "2021", "-O", HERE / "program.rs", "-o", run.input / "program")


def go_program(run: Pass) -> None:
    run.tool(
        "go", "build", "-o", run.input / "program", HERE / "program.go", env={"CGO_ENABLED": "1", "GO111MODULE": "off"}
    )


def compiled(status: int) -> Load:
    def load(run: Pass) -> None:
        run.run(run.input / "program", str(run.size(100_000, 5_000_000)), status=status)

    return load


def java(run: Pass) -> None:
    run.run("java", "-version")
    for collector in ("Serial", "Parallel", "G1")[: run.size(2, 3)]:
        run.run("java", f"-XX:+Use{collector}GC", HERE / "Start.java", str(run.size(50_000, 2_000_000)), status=12)


def memcached(run: Pass) -> None:
    path = run.folder / "socket"
    user = ("-u", "root") if os.geteuid() == 0 else ()

    def talk(text: str) -> str:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(f"{text}quit\r\n".encode())
            return b"".join(iter(lambda: line.recv(1 << 16), b"")).decode()

    with run.serve(
        "memcached", *user, "-s", path, "-m", "64", "-t", "2", ready=lambda: talk("version\r\n"), stop=interrupt
    ):
        for number in range(run.size(1000, 15_000)):
            value = "x" * (number * 7 % 3000)
            asked = f"set k{number % 700} 0 0 {len(value)}\r\n{value}\r\nget k{number * 3 % 700}\r\n"
            run.keep(f"answer {number}", talk(f"{asked}delete k{number % 11}\r\n"))


def make(run: Pass) -> None:
    count = run.size(3000, 30_000)
    (run.folder / "Makefile").write_text(
        f"numbers := $(shell seq {count})\nall: $(addprefix t,$(numbers))\n\t@echo $(words $^) $(lastword $(sort $^))\n"
        "upper = $(subst t,T,$(patsubst %1,%one,$(1)))\n"
        "$(addprefix t,$(numbers)): t%: ; $(if $(filter 7 77 777,$*),@echo $(call upper,$@))\n"
        "bad: ; @exit 3\n"
    )
    run.run("make")
    run.run("make", "bad", status=2)


def debugged(run: Pass) -> None:
    own_sources(run)
    run.tool("g++", "-std=c++17", "-g", "-O0", "-DDEPTH=20", HERE / "templates.cc", "-o", run.input / "program")


def gdb(run: Pass) -> None:
    asked = (
        "info functions",
        "info types",
        "break main",
        "disassemble main",
        "list main",
        "info scope main",
    )
    run.run("gdb", "-nx", "-batch", *(word for line in asked for word in ("-ex", line)), run.input / "program")


def dot(run: Pass) -> None:
    count = run.size(50, 60)
    edges = "".join(
        f'  n{i} -> n{i * 7 % count} [label="{i % 13}"]; n{i} -> n{(i + 11) % count};\n' for i in range(count)
    )
    for kind in ("svg", "json"):
        run.run("dot", f"-T{kind}", sent=f"digraph g {{\n{edges}}}\n")
    run.run("dot", "-Tsvg", sent="digraph {{", status=1)


def vim(run: Pass) -> None:
    lines = "\n".join(f"line {i * 7919 % 10007} of many" for i in range(run.size(20_000, 500_000)))
    (run.folder / "text").write_text(lines + "\n")
    edits = (
        "sort n /line/", r"%s/\(\d\+\) of/<\1>/g", r"g/7>/normal Ax", r"%s/many/\=submatch(0) . len(getline('.'))/",
        "undo", "redo",
        "w out", "q!",
    )  # fmt: skip
    run.run(
        "vim.tiny", "-es", "-u", "NONE", "-i", "NONE", "-n", *(word for edit in edits for word in ("-c", edit)), "text"
    )
    run.keep_file(run.folder / "out")


def rsync(run: Pass) -> None:
    run.run("rsync", "-a", "--stats", f"{run.input}/", "copy/", output=False)  # its sum of bytes depends on times
    # A later time: rsync takes a file that changed within the second in which it was made for unchanged.
    run.tool("sh", "-c", "rm -r copy/d7; for f in copy/d9/*; do echo more >> $f; done; "
                         "touch -d @1 copy copy/d9 copy/d9/*")
    run.run("rsync", "-a", "--checksum", "--itemize-changes", "--delete", f"{run.input}/", "copy/")
    run.keep("differences", run.tool("diff", "-r", run.input, "copy"))


def tree_tools(program: str, *lines: str, fails: str, status: int) -> Load:
    """A load over the small files, which stand in the folder as `input`, and a last line that cannot be done."""

    def load(run: Pass) -> None:
        (run.folder / "input").symlink_to(run.input)
        for line in lines:
            run.run(program, *shlex.split(line))
        run.run(program, *shlex.split(fails), status=status)

    return load


def xml_file(run: Pass) -> None:
    count = run.size(10_000, 100_000)
    items = "".join(
        f'<item id="{i}"><name>n{i * 7919 % 997}</name><v x="{i % 7}">{"t" * (i % 40)}</v></item>' for i in range(count)
    )
    (run.input / "file.xml").write_text(f"<all>{items}</all>")


def xmllint(run: Pass) -> None:
    for words in ("--format", "--stream", "--xpath count(//item[v/@x='3'])", "--c14n"):
        run.run("xmllint", *words.split(), run.input / "file.xml")
    run.run("xmllint", "-", sent="<a><b></a>", status=1)


def postgres(run: Pass) -> None:
    """initdb, and a server for one user: its sessions are forks elsewhere. It refuses to be root."""
    binaries = Path(found("/usr/lib/postgresql/*/bin/initdb")).parent
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.geteuid() == 0 else ()
    if user:
        run.folder.chmod(0o777)
    run.run(*user, binaries / "initdb", "-D", "data", "-E", "UTF8", "--no-locale", "-N")
    text = POSTGRES.replace("COUNT", str(run.size(30_000, 300_000)))
    run.run(
        *user,
        binaries / "postgres",
        "--single",
        "-D",
        "data",
        "-c",
        "fsync=off",
        "-c",
        "log_checkpoints=off",
        "postgres",
        sent=text,
    )


def ffmpeg(run: Pass) -> None:
    source = f"testsrc2=size=320x240:rate=25:duration={run.size(4, 60)}"
    run.run("ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-c:v", "mpeg4", "-bitexact", "-f", "framemd5", "-")


# ---- the rows --------------------------------------------------------------------------------------------------------

NPM_TIMES = ((r"\bin \d+m?s\b", "how long it took"), (r"(?<=/_logs/)\S+", "the time in a name"))
TIMINGS = ((r"\(\d+\.\d+s\)", "how long it took"),)

PROGRAMS = [
    *(cpython(module) for module in ("dict", "list", "set", "bytes", "ctypes", "fork1")),
    cpython("subprocess", "POSIXProcessTestCase", "RunFuncTestCase", "ContextManagerTests", "MiscTests"),
    cpython("threading", output=False),  # the order in which threads get their turn
    *(cpython(module, in_test=False) for module in ("gc", "json", "re", "io", "queue")),
    cpython("pickle", in_test=False, output=False),  # modules that are missing, in the order of a set
    Program("python3", "/usr/bin/python3=python3", script("/usr/bin/python3", "-c", 250_000, 3_000_000, PYTHON)),
    Program("numpy", "/usr/lib/python3/dist-packages/numpy=python3-numpy",
            script("/usr/bin/python3", "-c", 100_000, 2_000_000, NUMPY), in_test=False),
    Program("redis-server", "redis-benchmark=redis-tools", redis, is_light=True),
    Program("nginx", "nginx wrk", nginx, nginx_folder),
    Program("sqlite3", "sqlite3",
            reader("sqlite3", "file", short=60_000, long=1_000_000, text=SQL), is_light=True),
    Program("gcc", "gcc", c_compiler, own_sources),
    Program("g++", "g++", templates("g++")),
    Program("clang", "clang++=clang", templates("clang++"), in_test=False),
    Program("cmake", "cmake ninja=ninja-build gcc", cmake, c_project, scrub=TIMINGS),
    Program("ninja", "cmake ninja=ninja-build gcc", ninja, c_project),
    Program("git", "git", git, repository, is_light=True),
    Program("perl", "perl", script("perl", "-e", 50_000, 1_000_000, PERL, 3), is_light=True),
    Program("lua", "lua5.4", script("lua5.4", "-e", 60_000, 1_000_000, LUA), is_light=True),
    Program("node", "node=nodejs", script("node", "-e", 60_000, 1_000_000, NODE, 4)),
    Program("npm", "npm", npm, npm_packages, scrub=NPM_TIMES),
    Program("xz", "xz=xz-utils", xz, xz_files, least=1000, is_light=True),
    Program("openssl", "openssl", openssl, certificate, is_light=True,
            scrub=((r"^[0-9A-F]{8,}(?=:error:)", "the id of the thread"),)),
    Program("curl", "curl nginx openssl", curl, curl_folder),
    Program("rust", "rustc", compiled(10), rust_program),
    Program("go", "go=golang-go gcc", compiled(11), go_program),
    Program("java", "java=default-jre-headless javac=default-jdk-headless", java),
    Program("php", "php=php-cli /usr/lib/php/*/dom.so=php-xml",
            script("php", "-r", 60_000, 1_000_000, PHP, 6)),
    Program("ruby", "ruby", script("ruby", "-e", 60_000, 1_000_000, RUBY, 5)),
    Program("gawk", "gawk", script("gawk", "--", 60_000, 1_000_000, GAWK, 8), is_light=True),
    Program("bash", "bash", script("bash", "-c", 15_000, 300_000, BASH, 7), is_light=True),
    Program("jq", "jq", script("jq", "-n", 20_000, 500_000, JQ), is_light=True),
    Program("bc", "bc", reader("bc", "-q", short=2000, long=50_000, text=BC), is_light=True),
    Program("make", "make", make, is_light=True),
    Program("xmllint", "xmllint=libxml2-utils", xmllint, xml_file, is_light=True),
    Program("find", "find=findutils",
            tree_tools("find", "input/ -name '*7' -printf '%p %s %T@\\n'", fails="/none", status=1), small_files,
            least=5000, is_light=True),
    Program("ls", "ls=coreutils", tree_tools("ls", "-lRL --full-time input/", fails="/none", status=2), small_files,
            least=5000, is_light=True),
    Program("sort", "sort=coreutils", sort, numbers, least=10, is_light=True),
    Program("tar", "tar", tree_tools("tar", "-C input --sort=name -cvvf all.tar .", "-tvvf all.tar", fails="-xf /none",
            status=2), small_files, least=10_000, is_light=True),
    Program("zstd", "zstd", zstd, xz_files, least=500, is_light=True),
    Program("rsync", "rsync", rsync, small_files, least=10_000, is_light=True),
    Program("vim", "vim.tiny=vim-tiny", vim),
    Program("memcached", "memcached", memcached, least=100),
    Program("gdb", "gdb g++", gdb, debugged, in_test=False),
    Program("dot", "dot=graphviz", dot),
    Program("postgres", "/usr/lib/postgresql/*/bin/initdb=postgresql", postgres, in_test=False),
    Program("ffmpeg", "ffmpeg", ffmpeg, in_test=False, least=20_000),
]  # fmt: skip


# ---- comparing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    processes: int
    served: int
    compared: int  # bytes
    seconds: tuple[float, float]  # without the library, and under it: for the reader, never judged


def missing(program: Program) -> list[str]:
    pairs = (word.rpartition("=") for word in program.needs.split())
    return [package for command, _, package in pairs if find(command or package) is None]


def one_pass(program: Program, base: Path, is_long: bool, preload: dict[str, str]) -> tuple[Pass, float]:
    run = Pass(base, is_long, preload)
    shutil.rmtree(run.folder, ignore_errors=True)
    run.folder.mkdir(mode=0o755)
    begin = time.monotonic()
    program.load(run)
    return run, time.monotonic() - begin


def scrubbed(program: Program, part: Part) -> str:
    text = part.content
    for pattern, _ in program.scrub:
        text = re.sub(pattern, "...", text, flags=re.MULTILINE)
    return text


def difference(program: Program, without: Pass, under: Pass) -> str | None:
    """The first place where the passes differ, in words."""
    for one, two in zip(without.parts, under.parts, strict=False):
        if one.title != two.title:
            return f"{two.title} comes where {one.title} did"
        lines, others = (scrubbed(program, part).split("\n") for part in (one, two))
        if lines == others:
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(lines, others, strict=False)) if a != b), min(len(lines), len(others))
        )
        a, b = ("".join(text[at : at + 1]) or "(nothing more)" for text in (lines, others))
        return f"{one.title}, line {at + 1}:\n  without the library  {a!r:.300}\n  under it             {b!r:.300}"
    return None if len(without.parts) == len(under.parts) else "one pass gave more than the other"


def allocations(folder: Path) -> tuple[int, int]:
    """How many processes wrote their statistics, and the allocations that they were served."""
    counts = [re.search(r"^allocations (\d+)$", file.read_text(), re.MULTILINE) for file in folder.iterdir()]
    return len(counts), sum(int(count[1]) for count in counts if count)


def check(program: Program, library: Path, base: Path, is_long: bool, settings: dict[str, str]) -> Outcome:
    figures = base / "statistics"
    figures.mkdir()
    figures.chmod(0o1777)  # a program may change its user
    library = Path(shutil.copy(library, base))  # and then not be allowed to read where the library lies
    if program.prepare:
        (base / "input").mkdir()
        program.prepare(Pass(base, is_long, {}))
    without, plain_seconds = one_pass(program, base, is_long, {})
    preload = {"LD_PRELOAD": str(library), "TSLAB_STATS_AT_EXIT": f"{figures}/%p", **settings}
    under, seconds = one_pass(program, base, is_long, preload)
    if under.messages:
        raise Failure(f"the library says: {under.messages[0]}")
    if found_difference := difference(program, without, under):
        again, _ = one_pass(program, base, is_long, {})
        blame = "; two runs without the library differ, too: a `scrub` is missing, or the load is not deterministic"
        raise Failure(found_difference + (blame if difference(program, without, again) else ""))
    processes, served = allocations(figures)
    if served < program.least:
        raise Failure(f"{served:,} allocations served in {processes} processes, expected at least {program.least:,}")
    compared = sum(len(part.content) for part in under.parts)
    return Outcome(processes, served, compared, (plain_seconds, seconds))


# ---- the command line ------------------------------------------------------------------------------------------------


def chosen(names: list[str], is_long: bool) -> list[Program]:
    if not names:
        return [program for program in PROGRAMS if program.in_test or is_long]
    by_name = {program.name: program for program in PROGRAMS}
    if unknown := [name for name in names if name not in by_name]:
        print(f"programs.py: there is no program {', '.join(unknown)}; --list names them", file=sys.stderr)
        raise SystemExit(2)
    return [by_name[name] for name in names]


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.startswith("TSLAB_") and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TSLAB_NAME=VALUE")
    return name, value


def run_all(programs: list[Program], library: Path, is_long: bool, settings: dict[str, str], keep: bool) -> int:
    failed: list[str] = []
    skipped: list[str] = []
    print(
        f"{'program':20}{'processes':>10}{'allocations served':>20}{'bytes compared':>16}{'seconds without, under':>24}"
    )
    for program in programs:
        if packages := missing(program):
            print(f"{program.name:20}skipped: not installed; apt-get install {' '.join(packages)}", flush=True)
            skipped.append(program.name)
            continue
        base = Path(tempfile.mkdtemp(prefix="tslab-", dir="/tmp"))  # a socket's path must be short
        base.chmod(0o755)
        try:
            outcome = check(program, library, base, is_long, settings)
            before, after = outcome.seconds
            print(f"{program.name:20}{outcome.processes:10,}{outcome.served:20,}{outcome.compared:16,}"
                  f"{before:12.1f}{after:12.1f}", flush=True)  # fmt: skip
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"{program.name:20}FAILED: {failure}", flush=True)
            failed.append(program.name)
        finally:
            if keep:
                print(f"{'':20}kept in {base}")
            else:
                shutil.rmtree(base, ignore_errors=True)
    same = len(programs) - len(failed) - len(skipped)
    print(f"{same} the same, {len(failed)} failed, {len(skipped)} skipped" + "".join(f"\n  {name}" for name in failed))
    return 1 if failed else 77 if skipped else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", nargs="?", type=Path, help="libtslab.so")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; without one, all of this form")
    parser.add_argument("--long", action="store_true", help="the soak's form")
    parser.add_argument(
        "--set", action="append", default=[], type=setting, metavar="TSLAB_X=Y", help="for the second pass"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folders behind, and say where")
    parser.add_argument("--list", action="store_true", help="name the programs and what they need")
    parser.add_argument(
        "--names", action="store_true", dest="only_names", help="name the programs of this form, and nothing else"
    )
    parser.add_argument("--missing", action="store_true", help="name the packages that this form lacks")
    arguments = parser.parse_args()
    if arguments.list or arguments.only_names or arguments.missing:
        programs = PROGRAMS if arguments.list else chosen(arguments.names, arguments.long)
        if arguments.list:
            for program in programs:
                state = f"lacks {' '.join(missing(program))}" if missing(program) else "installed"
                print(f"{program.name:20}{'test' if program.in_test else 'soak':6}{state}")
        elif arguments.only_names:
            print("\n".join(program.name for program in programs))
        else:
            wanted = [program for program in programs if program.is_light or arguments.long]
            print("\n".join(sorted({package for program in wanted for package in missing(program)})))
        return 0
    if arguments.library is None:
        parser.error("which library? For example build/release/libtslab.so, which ./dev build makes")
    if not arguments.library.is_file():
        parser.error(f"{arguments.library} does not exist; ./dev build makes build/release/libtslab.so")
    programs = chosen(arguments.names, arguments.long)
    return run_all(programs, arguments.library.resolve(), arguments.long, dict(arguments.set), arguments.keep)


if __name__ == "__main__":
    sys.exit(main())
