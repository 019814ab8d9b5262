"""Statistics, the repository, settings, shared memory and metrics over HTTP."""

import json

from calls import CALLS, get, infer, pair, post, tensor

OWN = json.dumps(
    {
        "backend": "python",
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
)

get("statistics", "/v2/models/plus/stats")
get("statistics of all", "/v2/models/stats")
get("statistics, no such model", "/v2/models/minus/stats")
get("statistics, no such version", "/v2/models/plus/versions/7/stats")
post("index", "/v2/repository/index")
post("index, ready only", "/v2/repository/index", {"ready": True})
post("index, no JSON", "/v2/repository/index", b"hello")
get("index by GET", "/v2/repository/index")
post("unload", "/v2/repository/models/log/unload")
get("model ready, unloaded", "/v2/models/log/ready")
get("health ready, one unloaded", "/v2/health/ready")
get("model metadata, unloaded", "/v2/models/log")
infer("infer, unloaded", {"inputs": [tensor("x", "FP32", [1], [1])]}, "log")
CALLS["index, one unloaded"] = lambda side: side.settled("POST", "/v2/repository/index")
post("unload again", "/v2/repository/models/log/unload")
post("load", "/v2/repository/models/log/load")
post("load what is loaded", "/v2/repository/models/log/load", {})
post("load, no such model", "/v2/repository/models/minus/load")
post("unload, no such model", "/v2/repository/models/minus/unload")
post("load what can't be", "/v2/repository/models/broken/load")
post("index, one that can't be loaded", "/v2/repository/index")
get("health ready, one that can't be loaded", "/v2/health/ready")
infer("infer, one that can't be loaded", pair(), "broken")
post("unload what can't be", "/v2/repository/models/broken/unload")
post("load, no JSON", "/v2/repository/models/log/load", b"hello")
post("load, own config", "/v2/repository/models/log/load", {"parameters": {"config": OWN}})
post("load by the folder again", "/v2/repository/models/log/load")
post("unload a member", "/v2/repository/models/plus/unload")
get("ensemble ready without its member", "/v2/models/twice/ready")
infer("infer, ensemble without its member", pair(), "twice")
post("load the member again", "/v2/repository/models/plus/load")
infer("infer, ensemble whose member is back", pair(), "twice")
post("load the ensemble again", "/v2/repository/models/twice/load")
get("log settings", "/v2/logging")
post("change log settings", "/v2/logging", {"log_verbose_level": 1, "log_warning": False})
post("change them back", "/v2/logging", {"log_verbose_level": 0, "log_warning": True})
post("log settings, no such", "/v2/logging", {"log_nothing": True})
post("log settings, wrong type", "/v2/logging", {"log_info": "yes"})
post("log settings, format", "/v2/logging", {"log_format": "ISO8601"})
post("log settings, format back", "/v2/logging", {"log_format": "default"})
post("log settings, file", "/v2/logging", {"log_file": ""})
post("log settings, no JSON", "/v2/logging", b"hello")
get("trace settings", "/v2/trace/setting")
get("trace settings of a model", "/v2/models/plus/trace/setting")
get("trace settings, no such model", "/v2/models/minus/trace/setting")
post("trace settings, off", "/v2/trace/setting", {"trace_level": ["OFF"]})
post("trace settings, no such", "/v2/trace/setting", {"trace_nothing": "1"})
post("trace settings, rate", "/v2/trace/setting", {"trace_rate": "500"})
post("trace settings, rate back", "/v2/trace/setting", {"trace_rate": None})
post("trace settings, on", "/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_count": "0"})
post("trace settings, on again", "/v2/trace/setting", {"trace_level": ["OFF"], "trace_count": None})
get("system shared memory", "/v2/systemsharedmemory/status")
post(
    "register system shared memory",
    "/v2/systemsharedmemory/region/r/register",
    {"key": "/none", "offset": 0, "byte_size": 8},
)
post("unregister system shared memory", "/v2/systemsharedmemory/unregister")
get("CUDA shared memory", "/v2/cudasharedmemory/status")
post("unregister CUDA shared memory", "/v2/cudasharedmemory/unregister")
infer(
    "infer, shared memory",
    {
        "inputs": [
            {
                "name": "x",
                "shape": [1],
                "datatype": "FP32",
                "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4},
            }
        ]
    },
    "FP32",
)
CALLS["metrics"] = lambda side: side.metrics()
