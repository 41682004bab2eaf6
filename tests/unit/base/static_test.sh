#!/bin/sh
# //base:core links into a fully static program that runs. (With a sanitizer it cannot be static; it must still run.)
set -eu
probe=$1
if [ "$2" = static ] && readelf --dynamic "$probe" | grep -q NEEDED; then
  echo "static_probe needs shared libraries" >&2
  exit 1
fi
answer=$("$probe")
[ "$answer" = 'YWI="�"' ] || { echo "static_probe answered: $answer" >&2; exit 1; }
