#!/bin/sh
# The installed `automodel` command: finds LibTorch and Open MPI, then execs the program. In sh, so as not to need Python.
self=$(readlink -f -- "$0")
here=$(dirname -- "$self")

# The program's folder: next to bin/ in the archive; in an environment's site-packages if installed from the wheel.
root=
for candidate in "$here/.." "$here"/../lib*/python3*/site-packages/automodel; do
  [ -x "$candidate/libexec/automodel" ] && { root=$(cd "$candidate" && pwd -P); break; }
done
if [ -z "$root" ]; then
  echo "error[cannot-start]: the program is not beside '$self'" >&2
  echo "    help: unpack the archive, or install the wheel, again" >&2
  exit 4
fi

prepend() {  # VARIABLE FOLDER
  eval "old=\${$1:-}"
  eval "$1=\$2\${old:+:\$old}; export $1"
}

# The loader would name every symbol that is missing.
needed=@GLIBC@
there=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/.* //')
if [ -n "$there" ] && [ "$(printf '%s\n' "$needed" "$there" | sort -V | head -n 1)" != "$needed" ]; then
  echo "error[cannot-start]: this machine has glibc $there; this program needs $needed or newer" >&2
  echo "    help: build it on this machine, or use a container (docs/cluster.md)" >&2
  exit 4
fi

# LibTorch, in this order: named explicitly, in the wheel's own environment, next to the program, in the active environment.
wanted=@TORCH_VERSION@
looked=
torch=
try_torch() {  # FOLDER
  [ -n "$torch" ] || [ -z "$1" ] && return
  looked="$looked
          $1"
  if [ -e "$1/lib/libtorch_cpu.so" ]; then torch=$1; fi
}
if [ -n "${AUTOMODEL_LIBTORCH:-}" ]; then
  try_torch "$AUTOMODEL_LIBTORCH"
  try_torch "$AUTOMODEL_LIBTORCH/torch"
else
  try_torch "$root/../torch"
  try_torch "$root/libtorch"
  for environment in "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}"; do
    [ -n "$environment" ] || continue
    for folder in "$environment"/lib/python3*/site-packages/torch; do try_torch "$folder"; done
  done
fi
needs_torch() {
  for word in "$@"; do
    case "$word" in -h|--help) return 1 ;; --calibrate|--ranks) return 0 ;; esac
  done
  case "${1:-}" in train|verify|generate|*.yaml|*.yml) return 0 ;; esac
  return 1
}
if [ -n "$torch" ]; then
  prepend LD_LIBRARY_PATH "$torch/lib"
  found=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$torch/version.py" 2>/dev/null)
  [ -n "$found" ] || found=$(sed 's/[^0-9.].*//' "$torch/build-version" 2>/dev/null)
  if [ -n "$found" ] && [ "$found" != "$wanted" ] && needs_torch "$@"; then
    echo "error[cannot-start]: '$torch' is LibTorch $found; this program is made for $wanted" >&2
    echo "    help: pip install torch==$wanted, or name another with AUTOMODEL_LIBTORCH" >&2
    exit 4
  fi
elif needs_torch "$@"; then
  echo "error[cannot-start]: there is no LibTorch $wanted; looked in$looked" >&2
  echo "    help: pip install torch==$wanted in an environment and activate it, or unpack libtorch-$wanted to $root/libtorch, or name its folder with AUTOMODEL_LIBTORCH" >&2
  exit 4
fi

# Open MPI, in this order: named explicitly, that of mpirun, in the wheel's own environment, in the active environment.
mpi=
if [ -n "${AUTOMODEL_MPI:-}" ]; then
  mpi=$AUTOMODEL_MPI
  if [ ! -e "$mpi/lib/libmpi.so.40" ] && [ ! -e "$mpi/lib64/libmpi.so.40" ]; then
    echo "error[cannot-start]: AUTOMODEL_MPI names '$mpi', which has no lib/libmpi.so.40 (Open MPI 4 or 5)" >&2
    echo "    help: name the folder that holds bin/mpirun and lib/libmpi.so.40, or leave it out" >&2
    exit 4
  fi
elif command -v mpirun >/dev/null 2>&1; then
  mpi=$(dirname -- "$(dirname -- "$(readlink -f -- "$(command -v mpirun)")")")
fi
for environment in "$mpi" "$root/../../../.." "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}"; do
  [ -n "$environment" ] || continue
  for folder in "$environment/lib" "$environment/lib64" "$environment"/lib/*-linux-gnu "$environment"/lib/*-linux-gnu/openmpi/lib; do
    [ -e "$folder/libmpi.so.40" ] || continue
    case "$folder" in
      /usr/lib|/usr/lib64|/usr/lib/*-linux-gnu) ;;  # the loader's default paths
      *) prepend LD_LIBRARY_PATH "$folder" ;;
    esac
    case ":$PATH:" in
      *":$environment/bin:"*) ;;
      *) [ -x "$environment/bin/mpirun" ] && prepend PATH "$environment/bin" ;;
    esac
    break 2
  done
done

export AUTOMODEL_PROGRAM="$self"  # which job scripts name
exec "$root/libexec/automodel" "$@"
