"""raw.py MODEL TOKENS SECONDS: session.run in a loop, the limit of this machine, as a line of JSON.

Every way of using two cores, for batches of 1, 8 and 32: rows a second, and ms and CPU time of a run."""
import json
import resource
import sys
import threading
import time

import numpy as np
import onnxruntime as ort

WAYS = {"1 session of 2 threads": (1, 2, "0"), "… that spin": (1, 2, "1"), "2 sessions of 1 thread": (2, 1, "0")}
model, tokens, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def session(threads, spin):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", spin)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def repeat(session, feed, took):
    session.run(None, feed)
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or not took:
        before = time.perf_counter()
        session.run(None, feed)
        took.append(time.perf_counter() - before)


def measure(sessions, rows):
    ids = np.full((rows, tokens), 2000, np.int64)
    feed = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    runs = [[] for _ in sessions]
    threads = [threading.Thread(target=repeat, args=(one, feed, took)) for one, took in zip(sessions, runs)]
    before = resource.getrusage(resource.RUSAGE_SELF)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    every = sorted(span for took in runs for span in took)
    return {
        "rows_per_second": sum(len(took) * rows / sum(took) for took in runs),
        "p50_ms": every[len(every) // 2] * 1e3,
        # Each session has run once more, to be warm.
        "cpu_s_per_1000": cpu / ((len(every) + len(sessions)) * rows) * 1e3,
    }


result = {}
for name, (count, threads, spin) in WAYS.items():
    sessions = [session(threads, spin) for _ in range(count)]
    result[name] = {rows: measure(sessions, rows) for rows in (1, 8, 32)}
print(json.dumps(result))
