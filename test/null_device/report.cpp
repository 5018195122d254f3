// What a process did, as JSON, when it ends.
#include <cstdio>
#include <cstdlib>

#include <cxxabi.h>
#include <unistd.h>

#include "device.h"

namespace null_device {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter;
  }
  return out + '"';
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

template <class Map>
void write(std::FILE* file, const char* key, const Map& map) {
  std::fprintf(file, "  %s: {", quoted(key).c_str());
  const char* between = "\n";
  for (const auto& [name, number] : map) {
    std::fprintf(file, "%s    %s: %llu", between, quoted(demangled(name)).c_str(),
                 static_cast<unsigned long long>(number));
    between = ",\n";
  }
  std::fprintf(file, "},\n");
}

__attribute__((destructor)) void report() {
  const char* folder = std::getenv("NULL_DEVICE_REPORT");
  if (folder == nullptr) return;
  const std::lock_guard lock(device().mutex);
  const auto& all = device().counts;
  if (all.kernels.empty()) return;  // mpirun, a shell
  const auto path = std::string(folder) + "/" + std::to_string(getpid()) + ".json";
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return;
  std::fprintf(file, "{\n");
  write(file, "kernels", all.kernels);
  write(file, "waits", all.waits);
  std::map<std::string, std::uint64_t> copies, bytes;
  for (const auto& [way, copy] : all.copies) copies[way] = copy.number, bytes[way] = copy.bytes;
  write(file, "copies", copies);
  write(file, "copied bytes", bytes);
  write(file, "collectives", all.collectives);
  write(file, "collective bytes", all.collective_bytes);
  std::fprintf(file, "  \"communicators\": {");
  const char* between = "";
  for (const auto& [comm, operations] : all.operations) {
    std::fprintf(file, "%s\n    %s: [", between, quoted(comm).c_str());
    for (std::size_t i = 0; i < operations.size(); ++i)
      std::fprintf(file, "%s%s", i > 0 ? ", " : "", quoted(operations[i]).c_str());
    std::fprintf(file, "]");
    between = ",";
  }
  std::fprintf(file, "},\n");
  std::fprintf(
      file,
      "  \"matmuls\": %llu,\n  \"matmul FLOPs\": %.0f,\n  \"graph launches\": %llu,\n"
      "  \"kernels of graphs\": %llu,\n  \"allocations\": %llu,\n  \"peak bytes\": %zu,\n  \"used bytes\": %zu\n}\n",
      static_cast<unsigned long long>(all.matmuls), all.matmul_flops,
      static_cast<unsigned long long>(all.graph_launches), static_cast<unsigned long long>(all.graph_kernels),
      static_cast<unsigned long long>(all.allocations), device().peak, device().used);
  std::fclose(file);
}

}  // namespace
}  // namespace null_device
