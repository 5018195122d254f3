#include "launch/doctor.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cuda_plugin.h"
#include "base/nvidia_driver.h"
#include "base/proc_field.h"
#include "base/shell_word.h"
#include "launch/train_command.h"

namespace automodel::launch {
namespace {

namespace fs = std::filesystem;

struct Output {
  int code = -1;
  std::string text = {};  ///< standard output and standard error
};

Output run(const std::string& command) {
  Output out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Whether a shared library can be loaded on this machine.
bool loads(const char* name) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// What a program said as "error[ID]: message" and "help: ...".
Finding told(std::string_view check, Health health, const std::string& text) {
  const auto line = first_line(text);
  const auto help = text.find("help: ");
  return {check, health, line.starts_with("error[") ? line.substr(line.find(": ") + 2) : line,
          help != std::string::npos ? first_line(text.substr(help + 6)) : ""};
}

Finding check_worker() {
  const auto path = worker_path();
  if (access(path.c_str(), X_OK) != 0)
    return {"libtorch", Health::kBad, fmt::format("'{}' is not there", path),
            "automodel-worker is installed beside automodel; set AUTOMODEL_WORKER where it is elsewhere"};
  // Without arguments it prints its usage and LibTorch's version (exit 2), but only after its libraries have loaded.
  const auto output = run(shell_quoted(path));
  if (output.code == 2)
    return {"libtorch", Health::kGood,
            fmt::format("automodel-worker starts with its libraries: {}", last_line(output.text)), ""};
  if (output.text.starts_with("error[")) return told("libtorch", Health::kBad, output.text);
  return {"libtorch", Health::kBad, fmt::format("automodel-worker does not start: {}", first_line(output.text)),
          "its libraries are not found: install LibTorch (scripts/install_dependencies.sh), or set LD_LIBRARY_PATH"};
}

Finding check_mpi() {
  const auto output = run("mpirun --version");
  if (output.code == 0) return {"mpi", Health::kGood, first_line(output.text), ""};
  return {"mpi", Health::kBad, "mpirun cannot be started", "install Open MPI; without it only one rank can train"};
}

Finding check_driver() {
  const auto line = nvidia_driver();
  if (!has_nvidia_driver()) return {"driver", Health::kWarning, "no NVIDIA driver: training runs on the CPU", ""};
  if (const auto lack = driver_lack(line, kCudaMajor); !lack.empty())
    return {"driver", Health::kBad, line + "; " + lack,
            "a newer driver, or NVIDIA's cuda-compat package for data centre GPUs"};
  if (!loads("libcuda.so.1"))
    return {"driver", Health::kBad, line + ", but libcuda.so.1 cannot be loaded",
            "in a container, start it with the NVIDIA runtime"};
  return {"driver", Health::kGood, line, ""};
}

/// The worker opens its CUDA half, compiles a kernel, and reports what it contains, or what is missing.
Finding check_cuda_half() {
  const auto file = find_cuda_plugin(fs::path(worker_path()).parent_path());
  const auto harm = has_nvidia_driver() ? Health::kBad : Health::kWarning;  // without a driver it would be of no use
  if (file.empty())
    return {"cuda", Health::kWarning, fmt::format("no {} beside the program: it computes on the CPU", kCudaPlugin),
            has_nvidia_driver() ? "cmake --preset cuda builds it (docs/gpu.md)" : ""};
  const auto output = run(shell_quoted(worker_path()) + " --load-cuda-half");
  if (output.code != 0) return told("cuda", harm, output.text);
  const auto loads = fmt::format("{} loads: {}", file.native(), first_line(output.text));
  // Libraries that are loaded may print lines, too.
  const auto lack = output.text.find(fmt::format("\n{}", kNoKernelCompiler));
  if (lack == std::string::npos) return {"cuda", Health::kGood, loads + "; NVRTC compiles kernels", ""};
  return {"cuda", Health::kWarning,
          fmt::format("{}; {}", loads, first_line(output.text.substr(lack + 1 + kNoKernelCompiler.size()))),
          "cuDNN compiles its attention at run time; without it flash attention is used: pip install the "
          "nvidia-cuda-nvrtc of this CUDA, or set LD_LIBRARY_PATH to its folder"};
}

Finding check_network() {
  std::string seen;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/class/net", error)) {
    const auto name = entry.path().filename().string();
    if (name == "lo") continue;
    std::string state = "?", speed;
    std::ifstream(entry.path() / "operstate") >> state;
    std::ifstream(entry.path() / "speed") >> speed;
    seen += fmt::format("{}{} {}{}", seen.empty() ? "" : ", ", name, state,
                        !speed.empty() && speed[0] != '-' ? fmt::format(" {} Mb/s", speed) : "");
  }
  std::string adapters;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", error))
    adapters += (adapters.empty() ? "" : ", ") + entry.path().filename().string();
  if (!adapters.empty()) seen += "; InfiniBand or RoCE " + adapters;
  if (seen.empty())
    return {"network", Health::kWarning, "no interface but the loopback", "ranks can run on this machine only"};
  return {"network", Health::kGood, seen, ""};
}

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : std::to_string(value);
}

Finding check_limits() {
  rlimit files{}, locked{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  std::error_code error;
  const bool infiniband = fs::exists("/sys/class/infiniband", error);
  const auto seen =
      fmt::format("open files {}, locked memory {}", limit_text(files.rlim_cur), limit_text(locked.rlim_cur));
  if (files.rlim_cur < 4096)
    return {"limits", Health::kWarning, seen, "ulimit -n 65536: every connection and data file is an open file"};
  if (infiniband && locked.rlim_cur != RLIM_INFINITY)
    return {"limits", Health::kWarning, seen, "ulimit -l unlimited: InfiniBand needs locked memory"};
  return {"limits", Health::kGood, seen, ""};
}

Finding check_shared_memory() {
  struct statvfs space {};
  if (statvfs("/dev/shm", &space) != 0)
    return {"shared memory", Health::kBad, "/dev/shm is not there", "ranks of one machine communicate through it"};
  const double total = static_cast<double>(space.f_blocks) * static_cast<double>(space.f_frsize);
  const double free = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  const auto seen = fmt::format("/dev/shm has {} of {} free", format_bytes(free), format_bytes(total));
  if (free < 256.0 * (1 << 20)) return {"shared memory", Health::kWarning, seen, "in a container: --shm-size=8g"};
  return {"shared memory", Health::kGood, seen, ""};
}

Finding check_machine() {
  const double total = proc_field("/proc/meminfo", "MemTotal");
  const double available = proc_field("/proc/meminfo", "MemAvailable");
  const char* threads = std::getenv("OMP_NUM_THREADS");
  return {"machine", Health::kGood,
          fmt::format("{} cores, {} of {} memory available, OMP_NUM_THREADS {}", std::thread::hardware_concurrency(),
                      format_bytes(available), format_bytes(total),
                      threads != nullptr ? threads : "not set (cores are divided among ranks)"),
          ""};
}

Finding check_slurm() {
  const auto version = run("srun --version");
  constexpr int kNotFound = 127;  // the shell's code
  if (version.code == kNotFound) return {"slurm", Health::kWarning, "no Slurm here: ranks are started with mpirun", ""};
  if (version.code != 0)
    return {"slurm", Health::kWarning, "srun is here, but fails: " + first_line(version.text),
            "on a login node of the cluster 'srun --version' prints a version"};
  const bool pmix = run("srun --mpi=list").text.find("pmix") != std::string::npos;
  return {"slurm", Health::kGood, first_line(version.text) + (pmix ? " with PMIx" : " without PMIx"),
          pmix ? "" : "make scripts with 'automodel slurm --launcher mpirun'"};
}

constexpr std::array kChecks = {check_worker, check_mpi,           check_driver,  check_cuda_half, check_network,
                                check_limits, check_shared_memory, check_machine, check_slurm};

}  // namespace

std::string_view name_of(Health health) {
  constexpr std::array<std::string_view, 3> kNames = {"ok", "warning", "problem"};
  return kNames[static_cast<std::size_t>(health)];
}

std::vector<Finding> examine() {
  std::vector<Finding> out;
  for (const auto check : kChecks) out.push_back(check());
  return out;
}

}  // namespace automodel::launch
