"""tritonclient's log and trace settings of a worker that serves `plus`: usage FILE ADDRESS."""

import sys

import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(url=sys.argv[1])

settings = client.get_log_settings()
assert settings["log_info"] and settings["log_verbose_level"] == 0, settings
changed = client.update_log_settings({"log_verbose_level": 1, "log_warning": False})
assert changed["log_verbose_level"] == 1 and not changed["log_warning"], changed
assert client.get_log_settings() == changed

for model in (None, "plus"):
    assert client.get_trace_settings(model)["trace_level"] == ["OFF"]
    assert client.update_trace_settings(model, {"trace_level": ["OFF"], "trace_rate": None})["trace_level"] == ["OFF"]
    try:
        client.update_trace_settings(model, {"trace_level": ["TIMESTAMPS"], "trace_file": "/tmp/trace"})
    except InferenceServerException as error:
        assert "writes no traces" in error.message(), error
    else:
        raise AssertionError("a trace that is not written was promised")
print("ok")
