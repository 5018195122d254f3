#include "launch/k8s_manifest.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/problem_id.h"
#include "base/shell_word.h"
#include "config/value.h"
#include "config/yaml_text.h"
#include "launch/forwarding.h"

namespace automodel::launch {
namespace {

using config::Value;
using Map = Value::Map;
using List = Value::List;

constexpr const char* kFolder = "/etc/automodel";         ///< of the ConfigMap's files in every pod
constexpr const char* kHostfile = "/etc/mpi/hostfile";    ///< where both of Kubeflow's operators put it
constexpr const char* kSshFolder = "/etc/automodel-ssh";  ///< of a JobSet's key; the operators choose their own
constexpr std::size_t kMostName = 40;                     ///< leaves room for the suffixes of pods within 63 characters
constexpr const char* kSshWords =
    "-o ConnectionAttempts=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";

/// What stops ranks in a node's pod before it ends: sshd, its first process, would end and take them along. The name
/// of a process is cut to 15 characters.
constexpr const char* kStop =
    "# Tell this pod's ranks to save and stop, and wait until they have.\n"
    "ranks() {\n"
    "  for process in /proc/[0-9]*; do\n"
    "    if [ \"$(cat \"$process/comm\" 2>/dev/null)\" = automodel-worke ]; then echo \"${process#/proc/}\"; fi\n"
    "  done\n"
    "}\n"
    "for rank in $(ranks); do kill -USR1 \"$rank\"; done\n"
    "while [ -n \"$(ranks)\" ]; do sleep 1; done\n";

Value metadata(const K8sJob& job, const std::string& name) {
  Map out{{"name", name}};
  if (!job.space.empty()) out.emplace_back("namespace", job.space);
  out.emplace_back("labels", Map{{"app.kubernetes.io/name", "automodel"}, {"app.kubernetes.io/instance", job.name}});
  return out;
}

std::string config_name(const K8sJob& job) {
  return job.name + "-files";
}

std::string hostfile_of(const K8sJob& job) {
  return job.kind == K8sKind::kJobSet ? fmt::format("{}/hostfile", kFolder) : kHostfile;
}

/// The launcher's script: mpirun, and SIGTERM for the ranks.
std::string run_script(const K8sJob& job) {
  std::string variables;
  for (const auto& [name, value] : job.variables) variables += " -x " + name;
  std::string command = fmt::format("automodel train {}/recipe.yaml", kFolder);
  for (const auto& word : job.overrides) command += " " + shell_quoted(word);
  return fmt::format(
             "# Start the ranks; on SIGTERM have them save and stop. Open MPI 4 and 5 name ssh's options differently.\n"
             "export OMPI_MCA_plm_rsh_args='{0}' PRTE_MCA_plm_rsh_args='{0}'\n"
             "mpirun --allow-run-as-root -np {1} --hostfile {2} --map-by ppr:{3}:node --bind-to {4} --wdir {5}{6} \\\n "
             " {7} "
             "&\n",
             std::string(kSshWords) + (job.kind == K8sKind::kJobSet ? fmt::format(" -i {}/id_rsa", kSshFolder) : ""),
             job.nodes * job.ranks_per_node, hostfile_of(job), job.ranks_per_node,
             job.gpus_per_node > 0 ? "numa" : "core", shell_quoted(job.folder), variables, command) +
         wait_and_forward("trap stop TERM\n", "trap - TERM\n") + "exit \"$code\"\n";
}

/// "key: |" and the lines of a text: a reader sees the recipe as it is.
std::string block(const std::string& key, const std::string& text) {
  std::string out = fmt::format("  {}: |2+\n", key);
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    if (end > at) out += "    " + text.substr(at, end - at);
    out += "\n";
    at = end + 1;
  }
  return out;
}

/// A file of the ConfigMap: its text as it is, or else in quotes.
std::string file(const std::string& key, const std::string& text) {
  return config::is_yaml_literal(text) ? block(key, text) : fmt::format("  {}: {}\n", key, config::yaml_quoted(text));
}

std::string config_map(const K8sJob& job) {
  std::string out =
      config::to_yaml(Map{{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", metadata(job, config_name(job))}});
  out += "data:\n";
  if (job.kind == K8sKind::kJobSet) {
    std::string hosts;  // JobSet's names of the pods of its job "node"
    for (int i = 0; i < job.nodes; ++i)
      hosts += fmt::format("{0}-node-0-{1}.{0} slots={2}\n", job.name, i, job.ranks_per_node);
    out += block("hostfile", hosts);
  }
  return out + file("recipe.yaml", job.recipe) + file("run.sh", run_script(job)) + file("stop.sh", kStop);
}

Value variables_of(const K8sJob& job) {
  List out;
  for (const auto& [name, value] : job.variables) out.emplace_back(Map{{"name", name}, {"value", value}});
  return out;
}

/// Without StrictModes: the folder of a Secret's volume has mode 1777, below which sshd would refuse every key.
List sshd_of(const K8sJob& job) {
  List out{"/usr/sbin/sshd", "-De", "-o", "StrictModes=no"};
  if (job.kind == K8sKind::kJobSet)
    for (const auto& word : {std::string("-o"), fmt::format("AuthorizedKeysFile={}/authorized_keys", kSshFolder)})
      out.emplace_back(word);
  return out;
}

/// A pod that can run ranks or mpirun: image, files, memory for shared buffers, volumes.
Map pod(const K8sJob& job, bool launcher, const std::string& container_name) {
  List mounts{Map{{"name", "files"}, {"mountPath", kFolder}}, Map{{"name", "memory"}, {"mountPath", "/dev/shm"}}};
  List volumes{Map{{"name", "files"}, {"configMap", Map{{"name", config_name(job)}}}},
               Map{{"name", "memory"}, {"emptyDir", Map{{"medium", "Memory"}}}}};
  int number = 0;
  for (const auto& [claim, path] : job.volumes) {
    const auto name = fmt::format("volume-{}", number++);
    mounts.emplace_back(Map{{"name", name}, {"mountPath", path}});
    volumes.emplace_back(Map{{"name", name}, {"persistentVolumeClaim", Map{{"claimName", claim}}}});
  }
  if (job.kind == K8sKind::kJobSet) {
    mounts.emplace_back(Map{{"name", "ssh"}, {"mountPath", kSshFolder}});
    volumes.emplace_back(
        Map{{"name", "ssh"},
            {"secret", Map{{"secretName", job.name + "-ssh"},
                           {"defaultMode", 0600},
                           {"items", List{Map{{"key", "ssh-privatekey"}, {"path", "id_rsa"}},
                                          Map{{"key", "ssh-publickey"}, {"path", "authorized_keys"}}}}}}});
  }
  Map container{{"name", container_name}, {"image", job.image}};
  if (launcher)
    container.emplace_back("command", List{"/bin/bash", fmt::format("{}/run.sh", kFolder)});
  else
    container.emplace_back("command", sshd_of(job));
  container.emplace_back("workingDir", job.folder);
  if (auto variables = variables_of(job); !variables.list()->empty())
    container.emplace_back("env", std::move(variables));
  if (!launcher && job.gpus_per_node > 0)
    container.emplace_back("resources", Map{{"limits", Map{{"nvidia.com/gpu", job.gpus_per_node}}}});
  if (!launcher)
    container.emplace_back(
        "lifecycle",
        Map{{"preStop", Map{{"exec", Map{{"command", List{"/bin/sh", fmt::format("{}/stop.sh", kFolder)}}}}}}});
  container.emplace_back("volumeMounts", std::move(mounts));
  return {{"terminationGracePeriodSeconds", job.grace_seconds},
          {"containers", List{std::move(container)}},
          {"volumes", std::move(volumes)}};
}

Value mpi_job(const K8sJob& job) {
  const auto replicas = [](int count, const char* restart, Map spec) {
    return Map{{"replicas", count}, {"restartPolicy", restart}, {"template", Map{{"spec", Value(std::move(spec))}}}};
  };
  return Map{
      {"apiVersion", "kubeflow.org/v2beta1"},
      {"kind", "MPIJob"},
      {"metadata", metadata(job, job.name)},
      {"spec", Map{{"slotsPerWorker", job.ranks_per_node},
                   {"mpiImplementation", "OpenMPI"},
                   {"launcherCreationPolicy", "WaitForWorkersReady"},
                   {"runPolicy", Map{{"cleanPodPolicy", "Running"}, {"backoffLimit", job.max_restarts}}},
                   {"mpiReplicaSpecs", Map{{"Launcher", replicas(1, "Never", pod(job, true, "launcher"))},
                                           {"Worker", replicas(job.nodes, "OnFailure", pod(job, false, "worker"))}}}}}};
}

/// Exit codes after which the same command would end in the same way.
List final_codes() {
  List out;
  for (const auto code : {ExitCode::kBadInput, ExitCode::kRefused, ExitCode::kNonFinite, ExitCode::kCheckpoint})
    out.emplace_back(static_cast<int>(code));
  return out;
}

/// What JobSet and the runtime of a TrainJob have in common: nodes that wait for ssh, and a launcher that decides how
/// the whole ends.
Map job_set_spec(const K8sJob& job) {
  const auto part = [&](const char* name, int count, bool launcher) {
    Map spec = pod(job, launcher, launcher && job.kind == K8sKind::kJobSet ? "launcher" : "node");
    spec.emplace(spec.begin(), "restartPolicy", "Never");
    Map own{{"backoffLimit", 0}, {"completions", count}, {"parallelism", count}};
    if (launcher)
      own.emplace_back("podFailurePolicy",
                       Map{{"rules", List{Map{{"action", "FailJob"},
                                              {"onExitCodes", Map{{"operator", "In"}, {"values", final_codes()}}}}}}});
    own.emplace_back("template", Map{{"spec", std::move(spec)}});
    Map job_template;
    if (launcher && job.kind == K8sKind::kTrainJob)
      job_template.emplace_back("metadata",
                                Map{{"labels", Map{{"trainer.kubeflow.org/trainjob-ancestor-step", "trainer"}}}});
    job_template.emplace_back("spec", std::move(own));
    Map out{{"name", name}};
    if (job.kind == K8sKind::kJobSet) out.emplace_back("replicas", 1);
    if (launcher) out.emplace_back("dependsOn", List{Map{{"name", "node"}, {"status", "Ready"}}});
    out.emplace_back("template", std::move(job_template));
    return out;
  };
  Map network{{"publishNotReadyAddresses", true}};
  if (job.kind == K8sKind::kJobSet) {
    network.emplace_back("enableDNSHostnames", true);
    network.emplace_back("subdomain", job.name);
  }
  return {{"network", std::move(network)},
          {"successPolicy", Map{{"operator", "All"}, {"targetReplicatedJobs", List{"launcher"}}}},
          {"failurePolicy", Map{{"maxRestarts", job.max_restarts},
                                {"rules", List{Map{{"name", "final"},
                                                   {"action", "FailJobSet"},
                                                   {"onJobFailureReasons", List{"PodFailurePolicy"}}}}}}},
          {"replicatedJobs", List{part("node", job.nodes, false), part("launcher", 1, true)}}};
}

Value job_set(const K8sJob& job) {
  return Map{{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
             {"kind", "JobSet"},
             {"metadata", metadata(job, job.name)},
             {"spec", job_set_spec(job)}};
}

Value training_runtime(const K8sJob& job) {
  return Map{{"apiVersion", "trainer.kubeflow.org/v1alpha1"},
             {"kind", "TrainingRuntime"},
             {"metadata", metadata(job, job.name + "-runtime")},
             {"spec", Map{{"mlPolicy", Map{{"numNodes", job.nodes},
                                           {"mpi", Map{{"numProcPerNode", job.ranks_per_node},
                                                       {"mpiImplementation", "OpenMPI"},
                                                       {"runLauncherAsNode", false}}}}},
                          {"template", Map{{"spec", job_set_spec(job)}}}}}};
}

Value train_job(const K8sJob& job) {
  return Map{
      {"apiVersion", "trainer.kubeflow.org/v1alpha1"},
      {"kind", "TrainJob"},
      {"metadata", metadata(job, job.name)},
      {"spec",
       Map{{"runtimeRef",
            Map{{"apiGroup", "trainer.kubeflow.org"}, {"kind", "TrainingRuntime"}, {"name", job.name + "-runtime"}}},
           {"trainer", Map{{"numNodes", job.nodes}, {"numProcPerNode", job.ranks_per_node}}}}}};
}

}  // namespace

std::string k8s_manifest(const K8sJob& job) {
  std::string out = config_map(job);
  const auto add = [&](const Value& object) { out += "---\n" + config::to_yaml(object); };
  if (job.kind == K8sKind::kTrainJob) add(training_runtime(job));
  add(job.kind == K8sKind::kMpiJob ? mpi_job(job) : job.kind == K8sKind::kTrainJob ? train_job(job) : job_set(job));
  return out;
}

std::string k8s_name(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    const auto letter = static_cast<char>(std::tolower(c));
    out += (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ? letter : '-';
  }
  if (out.empty() || out[0] < 'a' || out[0] > 'z') out = "run-" + out;
  out.resize(std::min(out.size(), kMostName));
  while (out.ends_with('-')) out.pop_back();
  return out;
}

bool is_k8s_subdomain(const std::string& name) {
  if (name.size() > 253) return false;
  for (std::size_t at = 0; at <= name.size();) {
    const auto end = std::min(name.find('.', at), name.size());
    if (!is_k8s_name(name.substr(at, end - at))) return false;
    at = end + 1;
  }
  return true;
}

bool is_k8s_name(const std::string& name) {
  return !name.empty() && name.size() <= 63 && name.front() != '-' && name.back() != '-' &&
         std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

}  // namespace automodel::launch
