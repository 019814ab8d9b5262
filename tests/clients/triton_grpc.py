"""The official tritonclient over gRPC and the proxy, in front of a scripted worker: usage FILE BASE_URL."""

import queue
import sys

import numpy
import tritonclient.grpc as grpc

client = grpc.InferenceServerClient(sys.argv[1].removeprefix("http://"))
tensor = grpc.InferInput("INPUT0", [1, 4], "FP32")
tensor.set_data_from_numpy(numpy.ones((1, 4), dtype=numpy.float32))


def the_fleet():
    assert client.is_server_live() and client.is_server_ready()
    assert client.get_server_metadata().name == "forebay"
    models = client.get_model_repository_index().models
    assert [(model.name, model.state) for model in models] == [("m", "READY")], models


def a_call():
    assert client.is_model_ready("m")
    answer = client.infer("m", [tensor], request_id="7", client_timeout=10).get_response()
    assert (answer.model_name, answer.id) == ("real", "7"), answer


def an_unknown_model():
    try:
        client.infer("unknown", [tensor])
    except grpc.InferenceServerException as error:
        assert error.status() == "StatusCode.NOT_FOUND", error.status()
    else:
        raise AssertionError("a model that nobody serves was taken")


def a_stream():
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for place in range(20):
        client.async_stream_infer("m", [tensor], request_id=str(place))
        # One after the other: each answer comes while the stream is open.
        result, error = answers.get(timeout=10)
        assert error is None, error
        answer = result.get_response()
        assert (answer.model_name, answer.id) == ("real", str(place)), answer
    client.stop_stream()


for check in (the_fleet, a_call, an_unknown_model, a_stream):
    check()
    print("ok", check.__name__)
