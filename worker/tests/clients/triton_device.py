"""What computes `plus`, as a worker tells it over gRPC: usage FILE ADDRESS."""

import sys

from tritonclient.grpc import InferenceServerClient

client = InferenceServerClient(sys.argv[1])
config = client.get_model_config("plus").config
(group,) = config.instance_group
assert (group.name, group.kind, group.count) == ("plus_0", group.Kind.KIND_CPU, 1), group
client.close()
