"""Streams and asyncio over gRPC against a worker that serves `plus`: usage FILE ADDRESS."""

import asyncio
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

PATIENCE = 30


def inputs(step, columns=2):
    values = np.full((1, columns), step, dtype=np.float32)
    given = [triton.InferInput(name, [1, columns], "FP32") for name in ("a", "b")]
    for tensor in given:
        tensor.set_data_from_numpy(values)
    return given


# In order, however many at a time, and a failure costs no more than its own answer.
answers = queue.Queue()
client = triton.InferenceServerClient(url=sys.argv[1])
client.start_stream(callback=lambda result, error: answers.put((result, error)))
try:
    for step in range(200):
        client.async_stream_infer("plus", inputs(step, 3 if step == 50 else 2), request_id=str(step))
    for step in range(200):
        result, error = answers.get(timeout=PATIENCE)
        if step == 50:
            assert result is None and "has shape [1, 3]" in str(error), error
            continue
        assert error is None, error
        shown = result.get_response()
        assert shown.id == str(step) and shown.parameters["triton_final_response"].bool_param, shown
        assert result.as_numpy("sum")[0, 0] == 2 * step
finally:
    # Its thread would outlive a failure.
    client.stop_stream(cancel_requests=True)


async def aio():
    client = triton_aio.InferenceServerClient(url=sys.argv[1])
    assert await client.is_model_ready("plus")
    many = await asyncio.gather(*(client.infer("plus", inputs(step)) for step in range(50)))
    assert [answer.as_numpy("sum")[0, 0] for answer in many] == [2 * step for step in range(50)]

    async def requests():
        for step in range(20):
            yield {"model_name": "plus", "inputs": inputs(step), "request_id": str(step)}

    seen = []
    async for result, error in client.stream_infer(requests()):
        assert error is None, error
        seen.append(result.get_response().id)
    assert seen == [str(step) for step in range(20)], seen
    await client.close()


asyncio.run(asyncio.wait_for(aio(), PATIENCE))
print("ok")
