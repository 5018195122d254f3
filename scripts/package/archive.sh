# Sourced by package.sh and gpu_bundle.sh.

# write_archive FOLDER NAME OUTPUT WHAT: packs FOLDER/NAME as OUTPUT/NAME-linux-MACHINE.tar.gz, the same bytes for the same
# content, and says how large it is. WHAT it is called where it is larger than 60 MiB, which is an error.
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
