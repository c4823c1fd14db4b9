# A container image with one static binary and the root certificates, and nothing else: no shell, no user but 65532.
#
#	docker build -t notes .                                                      the Cloud Run example
#	docker build -t notes --build-arg PACKAGE=./examples/everything .           another command
#	docker build -t notes --target prebuilt .                                    from dist/image, without a network
#
# `make image` does the first with Docker, Podman or Buildah, and the last with PREBUILT=1.

FROM scratch AS base
ENV PORT=8080
EXPOSE 8080
USER 65532:65532
ENTRYPOINT ["/server"]

# dist/image has the binary and the certificates of whoever built them (see deploy/image.sh).
FROM base AS prebuilt
COPY dist/image/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY dist/image/server /server

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG PACKAGE=./examples/notes/cloudrun
ARG TARGETOS=linux
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w" -o /server $PACKAGE

FROM base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /server /server
