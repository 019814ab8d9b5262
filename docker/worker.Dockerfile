# The ONNX worker with the library and the small model that `./run deps` fetches. This file has not been run yet: there
# was no Docker engine where it was written.
#
#   docker build -f docker/worker.Dockerfile -t forebay-worker .

FROM rust:1.95-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-pip \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /forebay
COPY . .
RUN ./run deps run
RUN cargo build --locked --release --package forebay-worker --bin forebay-worker

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libstdc++6 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 forebay
# The worker looks for the library beside itself.
COPY --from=build /forebay/target/release/forebay-worker /opt/forebay/
COPY --from=build /forebay/target/onnxruntime/ /opt/forebay/
COPY --from=build /forebay/target/models/ /models/
USER forebay
EXPOSE 7081
ENTRYPOINT ["/opt/forebay/forebay-worker"]
CMD ["serve", "--models", "/models", "--http", "0.0.0.0:7081"]
