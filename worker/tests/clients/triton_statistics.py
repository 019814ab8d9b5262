"""tritonclient's statistics of a worker that serves `plus` and `tiny`: usage FILE ADDRESS."""

import sys

import numpy
import tritonclient.http as triton

client = triton.InferenceServerClient(url=sys.argv[1])


def infer(rows):
    inputs = []
    for name in ("a", "b"):
        one = triton.InferInput(name, [rows, 2], "FP32")
        one.set_data_from_numpy(numpy.ones([rows, 2], numpy.float32), binary_data=False)
        inputs.append(one)
    client.infer("plus", inputs, outputs=[triton.InferRequestedOutput("sum", binary_data=False)])


for rows in (1, 1, 3):
    infer(rows)
stats = client.get_inference_statistics("plus", "1")["model_stats"]
assert len(stats) == 1, stats
assert stats[0]["inference_count"] == 5 and stats[0]["execution_count"] == 3, stats
assert stats[0]["inference_stats"]["success"]["count"] == 3, stats
assert [one["batch_size"] for one in stats[0]["batch_stats"]] == [1, 3], stats
assert client.get_inference_statistics("plus")["model_stats"] == stats
both = client.get_inference_statistics()["model_stats"]
assert [one["name"] for one in both] == ["plus", "tiny"], both
print("ok")
