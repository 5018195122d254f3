// Kubernetes objects that train a recipe: the ranks of each node in one pod, started by mpirun from a launcher pod.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace automodel::launch {

/// Which controller runs the pods.
enum class K8sKind {
  kMpiJob,    ///< Kubeflow's MPI operator: MPIJob v2beta1
  kTrainJob,  ///< Kubeflow Trainer: TrainJob v1alpha1 and a TrainingRuntime with its MPI policy
  kJobSet,    ///< JobSet v1alpha2; the key for ssh is a Secret that the user makes
};

struct K8sJob {
  K8sKind kind = K8sKind::kMpiJob;
  std::string name = "automodel";  ///< of the job; other objects begin with it
  std::string space = {};          ///< namespace; empty: that of the user's context
  std::string image = {};
  int nodes = 1;
  int ranks_per_node = 1;
  int gpus_per_node = 0;    ///< 0: request none
  int max_restarts = 0;     ///< by Kubernetes; each continues from the newest checkpoint
  int grace_seconds = 120;  ///< between SIGTERM and SIGKILL
  std::vector<std::pair<std::string, std::string>> volumes = {};    ///< persistent volume claims and where they appear
  std::string folder = "/";                                         ///< working directory of the ranks
  std::vector<std::pair<std::string, std::string>> variables = {};  ///< environment of the ranks
  std::string recipe = {};                                          ///< its text
  std::vector<std::string> overrides = {};
};

/// YAML documents, separated by "---". SIGTERM for the launcher or a node's pod (eviction, drain, deletion) reaches
/// every rank as SIGUSR1: the run saves and ends with exit code 10, and is started again while restarts are left.
std::string k8s_manifest(const K8sJob& job);

/// A name for objects made of any text: lower-case letters, digits and hyphens, at most 40 of them, beginning with a
/// letter.
std::string k8s_name(const std::string& text);
/// Whether `name` may be the name of a job or a namespace (RFC 1123, one label).
bool is_k8s_name(const std::string& name);
/// Whether `name` may be the name of a claim (RFC 1123, labels with dots between them).
bool is_k8s_subdomain(const std::string& name);

}  // namespace automodel::launch
