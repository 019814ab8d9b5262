"""Servers that are measured: started in a session of their own, asked until they answer, and what they cost."""
import contextlib
import os
import pathlib
import subprocess
import time
import urllib.error
import urllib.request


@contextlib.contextmanager
def running(log, command, environment=None):
    """A process with a session of its own, stopped at the end together with whatever it started, also where that has
    outlived it."""
    with open(log, "w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=os.environ | (environment or {}), start_new_session=True
        )
    try:
        yield process
    finally:
        for signal in (15, 9):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal)
                process.wait(5)


def session(leader):
    """The processes in the session that `leader` began."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(stat.parent.name))
    return found


def cpu_seconds(pids):
    """Run time of all their living threads, to the nanosecond."""
    total = 0
    for pid in pids:
        for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(stat.read_text().split()[0])
    return total / 1e9


def call(url, method="GET", body=None, headers=None):
    headers = {"content-type": "application/json"} | (headers or {})
    request = urllib.request.Request(url, method=method, data=body, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=5) as answer:
        return answer.read()


def wait_until_it_answers(process, ask):
    """Asks until there is an answer, for as long as the process lives and a minute at most."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask()
        except (OSError, urllib.error.URLError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"it never answered: {error}") from error
            time.sleep(0.1)
