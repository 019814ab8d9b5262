"""Sequences in one gRPC stream, on a worker that serves `sums` with a single place: usage FILE ADDRESS."""

import queue
import sys

import numpy as np
import tritonclient.grpc as triton

PATIENCE = 30

client = triton.InferenceServerClient(url=sys.argv[1])
holder = triton.InferenceServerClient(url=sys.argv[1])
x = triton.InferInput("x", [1, 1], "FP32")
x.set_data_from_numpy(np.array([[1]], np.float32))

holder.infer("sums", [x], sequence_id=1, sequence_start=True)
answers = queue.Queue()
client.start_stream(callback=lambda result, error: answers.put((result, error)))
try:
    # All at once, with the place taken: the first waits, and the others behind it. The last begins the same anew.
    for start, end in [(True, False), (False, False), (False, True), (False, False), (True, True)]:
        client.async_stream_infer("sums", [x], sequence_id=2, sequence_start=start, sequence_end=end)
    holder.infer("sums", [x], sequence_id=1, sequence_end=True)
    for expected in (1, 2, 3, None, 1):
        result, error = answers.get(timeout=PATIENCE)
        if expected is None:
            assert "no such sequence" in str(error), error
            continue
        assert error is None, error
        assert result.as_numpy("y")[0, 0] == expected, result.get_response()
finally:
    # Its thread would outlive a failure.
    client.stop_stream(cancel_requests=True)
print("ok")
