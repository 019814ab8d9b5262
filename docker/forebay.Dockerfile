# The proxy. This file has not been run yet: there was no Docker engine where it was written.
#
#   docker build -f docker/forebay.Dockerfile -t forebay .

FROM rust:1.95-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends cmake \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /forebay
COPY . .
RUN cargo build --locked --release --package forebay --bin forebay

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 forebay \
 && install -d -o forebay -g forebay -m 0700 /var/lib/forebay
COPY --from=build /forebay/target/release/forebay /usr/local/bin/
USER forebay
ENV STATE_DIRECTORY=/var/lib/forebay
VOLUME /var/lib/forebay
EXPOSE 7070 7071
ENTRYPOINT ["forebay"]
CMD ["serve", "--config", "/etc/forebay/forebay.toml"]
