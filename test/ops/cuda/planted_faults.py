#!/usr/bin/env python3
"""Plants faults in the GPU kernels, one at a time, and checks that their tests find each.

  planted_faults.py SOURCE_DIR COMPILER TEST_OBJECTS KERNEL_OBJECTS OTHER_OBJECTS [NAME] [--every N]

The three lists are separated by ';'. A fault is a file of lib/ops/kernels/cuda, a text in it and its replacement;
a fault in device.h is tested with the kernels of the file named beside it. With NAME, only faults of kernel files whose
name begins with it; with --every, one of N (the texts of the others are looked for).
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

SYNC = "  __syncthreads();\n"
# (file, kernels, cases of the test, text, replacement)
FAULTS = [
    ("device.h", "norm", "*RMSNorm*", "part[threadIdx.x / kLanes] = x;\n" + SYNC, "part[threadIdx.x / kLanes] = x;\n"),
    ("device.h", "norm", "*LayerNorm*", SYNC[:-1] + "  // `part`", "  // `part`"),
    ("device.h", "norm", "*RMSNorm*", "int apart = kLanes / 2", "int apart = kLanes / 4"),
    ("device.h", "norm", "*RMSNorm*", "total += part[warp]", "total += part[0]"),
    ("device.h", "norm", "*RMSNorm*", "bool wide = columns % kWide == 0;", "bool wide = true;"),
    ("device.h", "gate", "*unaligned rows*", "% bytes == 0;", "% bytes >= 0;"),
    ("norm.cu", "norm", "*RMSNorm*", "in = sum + start;", "in = x + start;"),
    ("norm.cu", "norm", "*RMSNorm*", "  if (row >= rows) return;\n", ""),
    ("norm.cu", "norm", "*RMSNorm*", "(kThreads / team) + threadIdx.x / team", "(kThreads / team)"),
    ("norm.cu", "norm", "*RMSNorm*", "row += static_cast<std::int64_t>(gridDim.x) * kTeams", "row += gridDim.x"),
    ("norm.cu", "norm", "*RMSNorm*", "if (in.dsum != nullptr) residual[p] = read<N>(in.dsum + at);", ""),
    ("norm.cu", "norm", "*RMSNorm*", "  if constexpr (kTeams > 1) {\n    __syncthreads();\n", "  if constexpr (kTeams > 1) {\n"),
    ("norm.cu", "norm", "*RMSNorm*", "dynamic_shared<C>() + mine * in.kept * columns", "dynamic_shared<C>()"),
    ("norm.cu", "norm", "*RMSNorm*", "other < kTeams; ++other", "other < kTeams - 1; ++other"),
    ("norm.cu", "norm", "*LayerNorm*", "if constexpr (centred) sums[1][p][i] += gradient;", ""),
    ("norm.cu", "norm", "*RMSNorm*", "k < in.kept && c < columns", "k < in.kept"),
    ("norm.cu", "norm", "*RMSNorm*", "row += gridDim.x", "row += gridDim.x + 1"),
    ("norm.cu", "norm", "*RMSNorm*", "in.in_shared ? columns / N : 1", "in.in_shared ? columns / N - 1 : 1"),
    ("norm.cu", "norm", "*RMSNorm*", "sums[k * columns + c / along + i * apart] = 0;", "{}"),
    ("norm.cu", "norm", "*RMSNorm*", "in.partial + blockIdx.x * in.kept * columns", "in.partial"),
    ("norm.cu", "norm", "*RMSNorm*", "sums[warp][lane] = sum;\n" + SYNC, "sums[warp][lane] = sum;\n"),
    ("norm.cu", "norm", "*RMSNorm*", "  if (column < columns)\n", ""),
    ("norm.cu", "norm", "*LayerNorm*", "if (warp != 0 || column >= columns) return;", "if (warp != 0) return;"),
    ("norm.cu", "norm", "*LayerNorm*", "sum[columns] += gradient;", "sum[columns] += value;"),
    ("norm.cu", "norm", "*LayerNorm*", " - shift;", ";"),
    ("rope.cu", "rope", "*rotary*", "  if (pack >= in.packs) return;\n", ""),
    ("rope.cu", "rope", "*rotary*", "rope.row_stride % wide == 0 && ", ""),
    ("rope.cu", "rope", "*rotary*", "rope.width / 2 % wide == 0 && ", ""),
    ("rope.cu", "rope", "*rotary*", "(rest - head * in.of_head) * kPairs", "(rest - head * in.of_head)"),
    ("rope.cu", "rope", "*rotary*", "in.position[row] * in.half + pair", "in.position[row] * in.half"),
    ("rope.cu", "rope", "*rotary*", "write<N>(second, right);", "write<N>(second, left);"),
    ("rope.cu", "rope", "*rotary*", "both.at[2 * i + 1] = narrow<T>(b * cosine", "both.at[2 * i + 1] = narrow<T>(a * cosine"),
    ("groups.cu", "groups", "*groups*", "if (empty && !fresh) return;", "if (empty) return;"),
    ("groups.cu", "groups", "*groups*", "      const auto more", "    }\n    {\n      const auto more"),
    ("groups.cu", "groups", "*groups*", "    if (c >= count) return;\n", ""),
    ("groups.cu", "groups", "*groups*", "known = first_group + group", "known = group"),
    ("groups.cu", "groups", "*groups*", "if (!fresh) sum = read", "if (fresh) sum = read"),
    ("groups.cu", "groups", "*groups*", "gradient + group * gradient_distance", "gradient + group * count"),
    ("gate.cu", "gate", "*gates*", "  if (pack >= packs) return;\n  const std::int64_t row = pack * N / columns, c = pack * N % columns;",
     "  const std::int64_t row = pack * N / columns, c = pack * N % columns;"),
    ("gate.cu", "gate", "*gates*", "write<N>(dx + at + columns, ups);", "write<N>(dx + at + N, ups);"),
    ("gate.cu", "gate", "*pairs*", "if (!up_free) up = up > C(0) ? limit : -limit;", "if (!up_free) up = limit;"),
    ("loss.cu", "loss", "*cross-entropy*", SYNC + "  mine = {largest", "  mine = {largest"),
    ("loss.cu", "loss", "*cross-entropy*", "if (c + i == label)", "if (c == label)"),
    ("loss.cu", "loss", "*cross-entropy*", "if (gradient) fill_zero<T, N>(row, columns);", ""),
    ("loss.cu", "loss", "*cross-entropy*", "scale * *factor : scale", "scale : scale"),
    ("loss.cu", "loss", "*vocabulary shard*", "c < stride; c += kThreads", "c < stride - 1; c += kThreads"),
    ("loss.cu", "loss", "*vocabulary shard*", "in.stride % 16 == 0 ? in.columns : 1", "in.columns"),
    ("loss.cu", "loss", "*-inf*", "logits[i] == kNothing ? C(0) : ", ""),
    ("loss.cu", "loss", "*soft cap*", "(logit / cap) * (logit / cap)", "logit / cap"),
    ("optimizer.cu", "optimizer", "*Adam*", ">= table.first_block[piece + 1]", "> table.first_block[piece + 1]"),
    ("optimizer.cu", "optimizer", "*Adam*", "begin + kPerBlock < piece.count ? begin + kPerBlock : piece.count",
     "begin + kPerBlock"),
    ("optimizer.cu", "optimizer", "*Adam*", "  adam_elements<T, G, 1>(piece, rates, packed, end);\n", ""),
    ("optimizer.cu", "optimizer", "*Adam*", "const bool whole = aligned(piece.value) &&", "const bool whole = true ||"),
    ("optimizer.cu", "optimizer", "*squares*", "aligned(x) ? begin", "x != nullptr ? begin"),
    ("optimizer.cu", "optimizer", "*squares*", "table, partial + done)", "table, partial)"),
    ("optimizer.cu", "optimizer", "*squares*", "if (threadIdx.x == 0) *out = sum;", "*out = sum;"),
    ("embedding.cu", "embedding", "*embedding*", "  if (place > 0 && sorted[place - 1] == id) return;\n", ""),
    ("embedding.cu", "embedding", "*embedding*", "id >= table_rows", "id > table_rows"),
    ("embedding.cu", "embedding", "*embedding*", "high = count;", "high = count + 1;"),
    ("embedding.cu", "embedding", "*embedding*", "low = middle + 1;", "low = middle + 2;"),
    ("embedding.cu", "embedding", "*embedding*", "next + kAhead <= end", "next + kAhead < end + 2"),
    ("embedding.cu", "embedding", "*embedding*", "  if (c >= width) return;\n", ""),
    ("dropout.cu", "dropout", "*dropout*", "  if (index >= in.rows * each) return;\n", ""),
    ("dropout.cu", "dropout", "*dropout*", "if (element / 4 != known)", "if (known == ~std::uint64_t{0})"),
    ("dropout.cu", "dropout", "*dropout*", "column + kColumns && c < in.columns", "column + kColumns"),
    ("float8.cu", "float8", "*8-bit*", "return x < 0 ? -x : x;", "return x;"),
    ("float8.cu", "float8", "*8-bit*", SYNC + "  x = part[0];", "  x = part[0];"),
    ("float8.cu", "float8", "*8-bit*", "int warp = 1; warp < kWarps", "int warp = 2; warp < kWarps"),
    ("float8.cu", "float8", "*8-bit*", "c < columns; c += kThreads * N", "c < kThreads * N; c += kThreads * N"),
    ("float8.cu", "float8", "*8-bit*", "at < count; at += step", "at < step; at += step"),
    ("float8.cu", "float8", "*8-bit*", "row < rows; row += kColumnParts", "row < kColumnParts; row += kColumnParts"),
    ("float8.cu", "float8", "*8-bit*", "part < parts; part += kLanes", "part < kLanes; part += kLanes"),
    ("float8.cu", "float8", "*8-bit*", "if (power_of_two) factor", "if (!power_of_two) factor"),
    ("float8.cu", "float8", "*8-bit*", "wide_range ? 57344 : 448", "wide_range ? 448 : 448"),
    ("float8.cu", "float8", "*8-bit*", "row, column + i);\n  write", "row, column);\n  write"),
    ("float8.cu", "float8", "*8-bit*", "  __syncthreads();\n  const int c", "  const int c"),
    ("float8.cu", "float8", "*8-bit*", "if (row >= in.rows || column >= in.columns) continue;", "if (row >= in.rows) continue;"),
    ("float8.cu", "float8", "*8-bit*", "cast.rows % kStored == 0", "true"),
    ("float8.cu", "float8", "*8-bit*", "i < kStored && row + i < in.rows", "i < kStored"),
    ("float8.cu", "float8", "*8-bit*", "x + blockIdx.x * pitch", "x + blockIdx.x * columns"),
    ("float8.cu", "float8", "*8-bit*", "at / columns * pitch + at % columns", "at"),
    ("float8.cu", "float8", "*8-bit*", "x[row * pitch + c]", "x[row * columns + c]"),
    ("float8.cu", "float8", "*8-bit*", "read<N>(x + row * in.pitch + column);\n  Pack", "read<N>(x + at);\n  Pack"),
    ("float8.cu", "float8", "*8-bit*", "std::gcd(cast.columns, cast.pitch)", "cast.columns"),
    ("float8.cu", "float8", "*8-bit*", "inverse[which] = 1 / factor;", "inverse[which] = factor;"),
    ("float8.cu", "float8", "*8-bit*", "  if (i >= count) return;", ""),
    ("quantized.cu", "quantized", "*dense*", "while (within >= in.ranges.begin[range + 1])", "while (within > in.ranges.begin[range + 1])"),
    ("quantized.cu", "quantized", "*dense*", "repeat * in.period + in.ranges.first", "in.ranges.first"),
    ("quantized.cu", "quantized", "*dense*", "in.aligned ? local / in.block", "in.aligned ? block"),
    ("quantized.cu", "quantized", "*dense*", "block - in.ranges.first[0] / in.block", "block"),
    ("quantized.cu", "quantized", "*dense*", "outer[1 + block / kScaleBlock]", "outer[1]"),
    ("quantized.cu", "quantized", "*dense*", "local + (block + 1) * in.block - at", "local + in.block"),
    ("quantized.cu", "quantized", "*dense*", "both >> 4U : both & 15U", "both & 15U : both >> 4U"),
    ("quantized.cu", "quantized", "*dense*", "static_cast<std::int8_t>(codes[i / 4].at[i % 4])", "codes[i / 4].at[i % 4]"),
    ("quantized.cu", "quantized", "*dense*", "      if (first + i < end) out[first + i]", "      out[first + i]"),
    ("quantized.cu", "quantized", "*dense*", "scale_of(in, first / kBlock, first / kBlock)", "scale_of(in, 0, 0)"),
    ("quantized.cu", "quantized", "*dense*", "ranges.count == 1 && ranges.first[0] == 0", "ranges.count == 1"),
    ("quantized.cu", "quantized", "*dense*", "  __syncthreads();\n", ""),
    ("routing.cu", "routing", "*router*", "score > best)", "score >= best)"),
    ("routing.cu", "routing", "*router*", "(other == best && where < place)", "(other == best)"),
    ("routing.cu", "routing", "*router*", "  if (row >= rows) return;", ""),
    ("routing.cu", "routing", "*sorts*", "of_warp[warp] = __popc(lanes);\n  " + SYNC, "of_warp[warp] = __popc(lanes);\n"),
    ("routing.cu", "routing", "*sorts*", "  " + SYNC[:-1] + "  // of_warp is", "  // of_warp is"),
    ("routing.cu", "routing", "*sorts*", "c < count && choices[c] == expert", "choices[c] == expert"),
    ("routing.cu", "routing", "*come back*", "weights != nullptr ? widen(weights[j]) : C(1)", "C(1)"),
    ("routing.cu", "routing", "*come back*", "c < width; c += kThreads * N", "c < kThreads * N; c += kThreads * N"),
    ("routing.cu", "routing", "*come back*", "  if (choice >= choices) return;", ""),
    ("routing.cu", "routing", "*come back*", "const T* from = dout + choice / k * width;", "const T* from = dout;"),
    ("routing.cu", "routing", "*come back*", "  dot = warp_sum(dot);\n", ""),
    ("routing.cu", "routing", "*come back*", "narrow<T>(weight * gradient)", "narrow<T>(gradient)"),
    ("routing.cu", "routing", "*sorts*", "if (other < warp)", "if (other <= warp)"),
]


def main():
    parser = argparse.ArgumentParser()
    for name in ("source", "compiler", "tests", "kernels", "others"):
        parser.add_argument(name)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--every", type=int, default=1)
    a = parser.parse_args()
    folder = pathlib.Path(a.source, "lib/ops/kernels/cuda")
    objects = a.kernels.split(";")
    missed = []
    ran = 0
    with tempfile.TemporaryDirectory() as temporary:
        copies = pathlib.Path(temporary, "ops/kernels/cuda")
        copies.mkdir(parents=True)
        for number, (file, kernel, cases, text, planted) in enumerate(FAULTS):
            if not kernel.startswith(a.name):
                continue
            for each in folder.iterdir():
                if each.suffix in (".cu", ".h"):
                    (copies / each.name).write_text(each.read_text())
            original = (folder / file).read_text()
            name = f"{file} {number}: {text.strip().splitlines()[0]!r}"
            if original.count(text) < 1:
                sys.exit(f"{name}: the text is not in the file")
            if number % a.every != 0:
                continue
            (copies / file).write_text(original.replace(text, planted, 1))
            replaced = f"{temporary}/{kernel}.o"
            subprocess.run([a.compiler, "-x", "c++", "-std=c++20", "-O1", "-fsanitize=thread", "-w", "-I", temporary, "-I",
                            f"{a.source}/lib", "-I", f"{a.source}/test/ops/cuda", "-c", str(copies / (kernel + ".cu")), "-o", replaced],
                           check=True)
            rest = [each for each in objects if pathlib.Path(each).name != f"{kernel}.cu.o"]
            assert len(rest) == len(objects) - 1, kernel
            program = f"{temporary}/test"
            subprocess.run([a.compiler, "-o", program, replaced, *a.tests.split(";"), *rest, *a.others.split(";"), "-lpthread"],
                           check=True)
            try:
                run = subprocess.run([program, cases, "-a"], capture_output=True, text=True, errors="replace", timeout=120)
                code, said = run.returncode, run.stdout
            except subprocess.TimeoutExpired:
                code, said = 1, "does not end"
            ran += 1
            lines = said.splitlines()
            how = [line.strip() for line in lines if " thread " in line or "wait for others" in line or " a pack " in line]
            how = how or [line.strip() for line in lines if "REQUIRE" in line or "CHECK" in line] or lines[-1:]
            print(f"{'found ' if code != 0 else 'MISSED'} {name}: {how[0] if code != 0 and how else code}", flush=True)
            if code == 0:
                missed.append(name)
    print(f"{ran} faults planted, {ran - len(missed)} found")
    return 1 if missed or ran == 0 else 0


sys.exit(main())
