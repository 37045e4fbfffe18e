# The program in a container of Debian 12: docker build -t spillway . && docker run --rm -v "$PWD:/work" spillway plan --help
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev cmake ninja-build pkg-config libhdf5-dev libgsl-dev \
    libjansson-dev libyaml-dev libdeflate-dev libzip-dev dpkg-dev file gzip && rm -rf /var/lib/apt/lists/*
COPY . /source
WORKDIR /source
RUN cmake --preset deb && cmake --build --preset deb && cd build/deb && cpack

FROM debian:12-slim
COPY --from=build /source/build/deb/spillway_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/spillway_*.deb && rm -rf /var/lib/apt/lists/* /tmp/spillway_*.deb
RUN spillway --version
WORKDIR /work
ENTRYPOINT ["spillway"]
