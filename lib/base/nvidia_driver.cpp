#include "base/nvidia_driver.h"

#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace automodel {

std::string nvidia_driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

bool has_nvidia_driver() {
  std::error_code error;
  for (const char* sign : {"/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"})
    if (std::filesystem::exists(sign, error)) return true;
  return false;
}

std::string nvidia_gpu(const std::filesystem::path& folder) {
  constexpr std::string_view kKey = "Model:", kBlank = " \t";
  std::string out;
  std::error_code error;
  for (const auto& gpu : std::filesystem::directory_iterator(folder / "gpus", error)) {
    std::ifstream file(gpu.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with(kKey)) continue;
      const auto first = line.find_first_not_of(kBlank, kKey.size());
      if (first == std::string::npos) return "";
      auto model = line.substr(first, line.find_last_not_of(kBlank) + 1 - first);
      if (!out.empty() && model != out) return "";
      out = std::move(model);
    }
  }
  return out;
}

int driver_branch(std::string_view line) {
  // The first word that starts with a number and a dot, such as "580.65.06". "x86_64" does not start with a digit.
  for (std::size_t at = 0; at < line.size(); ++at) {
    const bool begins = at == 0 || line[at - 1] == ' ';
    if (!begins || std::isdigit(static_cast<unsigned char>(line[at])) == 0) continue;
    int branch = 0;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), branch);
    if (error == std::errc() && end != line.data() + line.size() && *end == '.') return branch;
  }
  return 0;
}

std::string driver_lack(std::string_view line, int major) {
  const int branch = driver_branch(line);
  const auto least = [](int cuda) { return cuda >= 13 ? 580 : cuda == 12 ? 525 : 450; };
  if (branch == 0 || branch >= least(major)) return "";
  const std::string able = branch >= 525 ? "CUDA 12" : branch >= 450 ? "CUDA 11" : "nothing newer than CUDA 10";
  return fmt::format("driver {} runs {}; this program needs CUDA {}, driver {} or later", branch, able, major,
                     least(major));
}

}  // namespace automodel
