#!/bin/sh
# Builds the container image: deploy/image.sh [NAME], with the first of Docker, Podman and Buildah that is there.
#
#	PACKAGE   the command to build, ./examples/notes/cloudrun by default
#	GOARCH    the processor, amd64 by default: that is what Cloud Run has
#	PREBUILT  1: build the binary here, with Go, and the image around it, without a registry
set -eu
cd "$(dirname "$0")/.."
name=${1:-hydrant-notes}
package=${PACKAGE:-./examples/notes/cloudrun}
export GOOS=linux GOARCH="${GOARCH:-amd64}"

if docker info >/dev/null 2>&1; then
	build="docker build"
elif command -v podman >/dev/null; then
	build="podman build"
elif command -v buildah >/dev/null; then
	# The plainest there is: no daemon, no kernel features. BUILDAH_ISOLATION and STORAGE_DRIVER choose others.
	export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}" STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}"
	build="buildah build"
else
	echo "image: no builder: start Docker, or install Podman or Buildah" >&2
	exit 1
fi

if [ "${PREBUILT:-}" != 1 ]; then
	exec $build --platform "linux/$GOARCH" --build-arg "PACKAGE=$package" -t "$name" .
fi

certificates=
for file in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	if [ -n "$file" ] && [ -f "$file" ]; then
		certificates=$file
		break
	fi
done
if [ -z "$certificates" ]; then
	echo "image: no root certificates on this machine: set SSL_CERT_FILE" >&2
	exit 1
fi
mkdir -p dist/image
cp "$certificates" dist/image/ca-certificates.crt
CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o dist/image/server "$package"
exec $build --platform "linux/$GOARCH" --target prebuilt -t "$name" .
