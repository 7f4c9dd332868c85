#!/bin/sh
# own-names.sh ARCHIVE READELF OBJCOPY: gives the names that the library's files share (hidden: `options`, `labels`)
# a prefix that no program uses: tslab__options. Of an archive's names the linker sees the hidden ones, too.
set -eu
map=$1.names
"$2" -sW "$1" | awk '$5 != "LOCAL" && $6 == "HIDDEN" && $7 != "UND" && $8 ~ /^[a-z]/ && $8 !~ /^tslab_/ \
  { print $8, "tslab__" $8 }' | sort -u >"$map"
"$3" --redefine-syms="$map" "$1"
rm "$map"
