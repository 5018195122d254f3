#!/usr/bin/env python3
"""Plants faults in lib/comm/nccl, one at a time, and checks that the tests on imitated GPUs find each.

  planted_faults.py SOURCE_DIR BUILD_DIR

A fault is a file of lib/comm/nccl, a piece of its text and the replacement. The changed file is compiled and linked with
the build's own commands, ahead of the library that contains the original.
"""
import pathlib
import shlex
import subprocess
import sys
import tempfile

RECORD = "flight->begin.record(c10::cuda::getCurrentCUDAStream(device.index()).stream());\n"
VERBS = ""  # the verbs of imitated_nccl_parity; other faults name cases of imitated_nccl_test
# (file, cases, text, replacement)
FAULTS = [
    ("communicator.cpp", "what is read*", "  " + RECORD + "  flight->begin.hold(lane.stream());\n", "  flight->begin.hold(lane.stream());\n"),
    ("communicator.cpp", "what is read*", "  flight->begin.hold(lane.stream());\n", ""),
    ("communicator.cpp", "what is read*", "  flight.begin.hold(stream());\n", ""),
    ("communicator.cpp", "what is read*", "  flight->end.record(lane.stream());\n", ""),
    ("communicator.cpp", "tensors are*", "  flight->keep(std::move(tensors));\n", ""),
    ("communicator.cpp", "what is read*", "flight->end.hold(c10::cuda::getCurrentCUDAStream(device_.index()).stream());", ""),
    ("communicator.cpp", "pairs are*", "  connect(host, *flight);\n", ""),
    ("communicator.cpp", "messages between*", "apart == 1 || apart == size - 1", "apart > 0"),
    ("communicator.cpp", "messages between*", "config.maxCTAs = kMessageCtas;", "config.maxCTAs = 0;"),
    ("communicator.cpp", "a rank that waits*", "    watch_->stop_if_ending();", ""),
    ("watch.cpp", "a rank that waits*", "  world_.abort(code, text, world_.rank(), [this] { abort_communicators(); });",
     "  abort_communicators();\n  world_.abort(code, text, world_.rank());"),
    ("watch.cpp", "a hang inside*", "  if (inside_ > 0) return;\n", ""),
    ("communicator.cpp", "a send*", "sender % 2", "sender % 1"),
    ("communicator.cpp", "messages of one*", "    std::ranges::stable_sort(*list, {}, &Transfer::tag);\n", ""),
    ("communicator.cpp", "what is read*", "tensor.device().type() != kGpu", "tensor.device().type() == kGpu"),
    ("communicator.cpp", "a rank that*", "    watch.follow(flight_);\n", ""),
    ("communicator.cpp", VERBS, "op == ReduceOp::kMax ? ncclMax : ncclMin", "op == ReduceOp::kMax ? ncclMin : ncclMax"),
    ("communicator.cpp", VERBS, "      from += sent;\n", ""),
    ("communicator.cpp", VERBS, "ncclUint8, root,", "ncclUint8, 0,"),
    ("communicator.cpp", VERBS, "{at::kBFloat16, ncclBfloat16}", "{at::kBFloat16, ncclFloat16}"),
    ("watch.cpp", "a driver*", "if (lasts > world_.deadline())", "if (lasts < world_.deadline() && lasts > world_.deadline())"),
    ("watch.cpp", "a communicator*", "if (state != ncclInProgress) check_nccl(state, \"an operation of NCCL\");", ""),
    ("watch.cpp", "a rank that*", "if (now - followed.since > world_.deadline()) {", "if (now < followed.since) {"),
    ("watch.cpp", "a rank that*", "for (const ncclComm_t each : all) ncclCommAbort(each);", ""),
    ("gpu.cpp", "polling*", "if (status == cudaErrorNotReady) cudaGetLastError();", ""),
    ("gpu.cpp", "leaving a group*", "return queried(cudaStreamQuery(stream_));", "return cudaStreamQuery(stream_);"),
    ("nccl.cpp", "ranks that*", "  if (!shared) return;\n", "  return;\n"),
]


def commands(build, target):
    out = subprocess.run(["ninja", "-C", build, "-t", "commands", target], check=True, capture_output=True, text=True).stdout
    return [line for line in out.splitlines() if line]


def changed(command, source, old_output, new_source, output):
    """The compile command of `source`, for another file and object."""
    words = [word for word in shlex.split(command) if word != "ccache" and not word.endswith("/ccache")]
    words = [new_source if word == source else output if word == old_output else word for word in words]
    return [word for i, word in enumerate(words) if word not in ("-MD", "-MT", "-MF") and (i == 0 or words[i - 1] not in ("-MT", "-MF"))]


def main():
    source, build = sys.argv[1:3]
    folder = pathlib.Path(source, "lib/comm/nccl")
    missed = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, (file, cases, text, planted) in enumerate(FAULTS):
            original = (folder / file).read_text()
            name = f"{file} {number}: {text.strip().splitlines()[0]!r}"
            if text not in original:
                sys.exit(f"{name}: the text is not in the file")
            copy, output, linked = (f"{temporary}/{name}" for name in (file, "changed.o", "program"))
            pathlib.Path(copy).write_text(original.replace(text, planted, 1))
            lines = commands(build, "imitated_nccl_test" if cases else "imitated_nccl_parity")
            path = str(folder / file)
            compile_line = next(line for line in lines if path in shlex.split(line) and "imitated_nccl.dir" in line and " -c " in line)
            words = shlex.split(compile_line)
            run = changed(compile_line, path, words[words.index("-o") + 1], copy, output)
            subprocess.run([run[0], *run[1:], "-w", "-O0"], check=True, cwd=build)
            link = lines[-1].split("&&")
            link = shlex.split(next(part for part in link if "-o" in shlex.split(part)))
            at = link.index("-o")
            link[at + 1] = linked
            first = next(i for i, word in enumerate(link) if word.endswith("libimitated_nccl.a"))
            subprocess.run([*link[:first], output, *link[first:]], check=True, cwd=build)
            arguments = [cases] if cases else ["--backend", "loopback", "--ranks", "2", "--on", "cpu", "--case", "every verb"]
            try:
                result = subprocess.run([linked, *arguments], capture_output=True, text=True, timeout=20)
                code, said = result.returncode, result.stdout + result.stderr
            except subprocess.TimeoutExpired:
                code, said = 1, "does not end"
            how = [line.strip() for line in said.splitlines() if "CHECK" in line or "differ" in line] or said.splitlines()[-1:]
            print(f"{'found ' if code != 0 else 'MISSED'} {name}: {how[0] if how and code != 0 else code}", flush=True)
            if code == 0:
                missed.append(name)
    print(f"{len(FAULTS)} faults planted, {len(FAULTS) - len(missed)} found")
    return 1 if missed else 0


sys.exit(main())
