#!/bin/sh
# Makes the public images of Dockerfile and docker-compose.yml where Docker Hub cannot be reached: of Debian's packages, by
# debootstrap, as root. Debian's postgres and caddy get the names and the places of the official images.
set -eu
cd "$(dirname "$0")"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase trixie "$root" http://deb.debian.org/debian
[ ! -d /usr/local/share/ca-certificates ] || cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
echo 'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";' > "$root/etc/apt/apt.conf.d/docker-clean"
tar -C "$root" -c . | docker import - debian:13.8-slim
docker build --file stand_ins.Dockerfile --target postgres --tag postgres:18.6-trixie .
docker build --file stand_ins.Dockerfile --target caddy --tag caddy:2.11.4-alpine .
