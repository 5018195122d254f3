# Sourced by package.sh and gpu_bundle.sh.

# write_archive FOLDER NAME OUTPUT WHAT: packs FOLDER/NAME reproducibly as OUTPUT/NAME-linux-MACHINE.tar.gz and prints its
# size. More than 60 MiB is an error, whose message calls the archive WHAT.
write_archive() {
  local archive="$3/$2-linux-$(uname -m).tar.gz" size
  tar -C "$1" --owner=0 --group=0 --numeric-owner --sort=name --mtime='2020-01-01' -czf "$archive" "$2"
  size="$(stat -c %s "$archive")"
  echo "$archive ($((size / 1048576)) MiB)"
  if [ "$size" -gt $((60 * 1048576)) ]; then
    echo "the $4 is larger than 60 MiB" >&2
    exit 1
  fi
}
