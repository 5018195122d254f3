#!/usr/bin/env python3
"""Builds the null device (device.h): one shared object for each of NVIDIA's libraries that LibTorch's CUDA half loads.

  build.py LIBTORCH PLUGIN FOLDER --include DIR... [--cxx COMPILER]      77: a header or library is not here

LIBTORCH is the folder of libtorch_cuda.so and PLUGIN our automodel-cuda.so: what they import decides which functions
exist. Those that the sources here do not define end the process with their name. FOLDER/preload gets the list for
LD_PRELOAD: libtorch_cuda.so has a run path of its own, which LD_LIBRARY_PATH cannot override.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = {
    "libcudart.so.13": ["launches", "memory", "properties", "report", "streams"],
    "libcuda.so.1": ["driver"],
    "libcublas.so.13": ["matmul"],
    "libcublasLt.so.13": ["matmul"],
    "libcudnn.so.9": ["cudnn"],
    "libnccl.so.2": ["nccl"],
    "libnvrtc.so.13": ["nvrtc"],
}
OF_NVIDIA = re.compile(r"lib(cu|nv|nccl)[A-Za-z_]*\.so\.\d+$")
UNVERSIONED = {"nccl": "libnccl.so.2", "nvshmem": "libnvshmem_host.so.3", "cusparseLt": "libcusparseLt.so.0", "cuFile": "libcufile.so.0"}


def output(*words):
    return subprocess.run([str(word) for word in words], check=True, text=True, capture_output=True).stdout


def library_of(name, version, libraries):
    """The library that is asked for an imported function; None if it is not one of NVIDIA's."""
    if version in libraries:
        return version
    if version and version != "NVSHMEM":
        return None
    for prefix, library in UNVERSIONED.items():
        if name.startswith(prefix):
            return library
    return "libcuda.so.1" if re.match("cu[A-Z]", name) else None


def imports(objects):
    """The libraries that the objects need, and for each the functions that they import from it."""
    libraries = set(SOURCES)
    for item in objects:
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", item))
        libraries.update(name for name in needed if OF_NVIDIA.match(name))
    out = collections.defaultdict(set)
    for item in objects:
        for line in output("nm", "-D", "--undefined-only", item).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if (library := library_of(name, version.lstrip("@"), libraries)) is not None:
                out[library].add(name)
        if "c10_cuda" in item.name:  # it looks the driver's functions up by name
            out["libcuda.so.1"].update(name.decode() for name in re.findall(rb"(?<=\0)cu[A-Z][A-Za-z0-9]+(?=_?\0)", item.read_bytes()))
    return libraries, out


def build(library, wanted, arguments, compiled):
    folder = arguments.folder
    objects = [compiled[source] for source in SOURCES.get(library, [])]
    have = set()
    for item in objects:
        have.update(line.split()[-1] for line in output("nm", "--defined-only", item).splitlines())
    stubs = folder / f"{library}.stubs.c"
    lines = ["#include <stdio.h>", "#include <stdlib.h>", "static void unknown(const char* name) {",
             '  fprintf(stderr, "null device: %s is not here\\n", name);', "  fflush(stderr);", "  abort();", "}"]
    lines += [f'void {name}(void) {{ unknown("{name}"); }}' for name in sorted(wanted - have)]
    stubs.write_text("\n".join(lines) + "\n")
    script = folder / f"{library}.map"
    version = "NVSHMEM" if "nvshmem" in library else library
    versioned = library not in ("libcuda.so.1", "libnccl.so.2", "libcusparseLt.so.0", "libcufile.so.0")
    script.write_text(f"{version if versioned else ''} {{ global: *; }};\n")
    rest = [] if library == "libcudart.so.13" else [f"-L{folder}", "-l:libcudart.so.13"]
    compiler = arguments.cxx
    subprocess.run([compiler, "-x", "c", "-fPIC", "-c", stubs, "-o", f"{stubs}.o", "-Wno-builtin-declaration-mismatch"], check=True)
    subprocess.run([compiler, "-shared", "-o", folder / library, f"-Wl,-soname,{library}", f"-Wl,--version-script={script}",
                    *objects, f"{stubs}.o", *rest, "-ldl"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libtorch", type=pathlib.Path)
    parser.add_argument("plugin", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--cxx", default="g++")
    arguments = parser.parse_args()
    needed = ["cuda.h", "cublasLt.h", "cudnn.h", "nccl.h", "nvrtc.h"]
    absent = [name for name in needed if not any((pathlib.Path(folder) / name).exists() for folder in arguments.include)]
    absent += [str(path) for path in (arguments.libtorch / "libtorch_cuda.so", arguments.plugin) if not path.exists()]
    if absent:
        print("skipped: without", ", ".join(absent))
        return 77
    arguments.folder.mkdir(parents=True, exist_ok=True)
    loaded = ["libtorch_cuda.so", "libc10_cuda.so", "libtorch_cuda_linalg.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so"]
    libraries, wanted = imports([arguments.libtorch / name for name in loaded if (arguments.libtorch / name).exists()] + [arguments.plugin])
    compiled = {}
    for source in sorted({name for names in SOURCES.values() for name in names}):
        compiled[source] = arguments.folder / f"{source}.o"
        subprocess.run([arguments.cxx, "-std=c++20", "-O1", "-g", "-fPIC", "-Wall", "-Wextra", "-Wno-deprecated-declarations",
                        *(f"-I{folder}" for folder in arguments.include), "-c", HERE / f"{source}.cpp", "-o", compiled[source]], check=True)
    # The runtime first: the others are linked with it.
    order = sorted(libraries, key=lambda name: (name != "libcudart.so.13", name))
    for library in order:
        build(library, wanted[library], arguments, compiled)
    (arguments.folder / "preload").write_text(":".join(str((arguments.folder / name).resolve()) for name in order))
    return 0


if __name__ == "__main__":
    sys.exit(main())
