#include "comm/world.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "base/text_hash.h"
#include "comm/ending.h"
#include "comm/solo_communicator.h"

namespace automodel::comm {
namespace {

at::Tensor bytes_tensor(std::int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte));
}

at::Tensor tensor_of(const std::string& text) {
  at::Tensor bytes = bytes_tensor(static_cast<std::int64_t>(text.size()));
  std::ranges::copy(text, static_cast<char*>(bytes.mutable_data_ptr()));
  return bytes;
}

std::string text_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

at::Tensor int64_tensor(std::int64_t count, std::int64_t value) {
  return at::full({count}, value, at::TensorOptions().dtype(at::kLong));
}

std::string without_end(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

void World::begin(Place place, const WorldOptions& options, std::shared_ptr<Transport> control) {
  place_ = std::move(place);
  const bool crowded = place_.local_size > sysconf(_SC_NPROCESSORS_ONLN);
  runtime_.engine = std::make_shared<Engine>(
      EngineOptions{place_.rank, options.deadline, options.background_progress && place_.size > 1, crowded});
  runtime_.scratch = std::make_shared<ScratchPool>();
  runtime_.limits = options.limits;
  runtime_.stage_all = options.stage_all;
  imitation_ = options.imitation;
  if (place_.size == 1) {
    control_ = std::make_shared<SoloCommunicator>(0, "control");
    return;
  }
  std::vector<int> all;
  for (int r = 0; r < place_.size; ++r) all.push_back(r);
  host_control_ =
      std::make_shared<HostCommunicator>(std::move(all), place_.rank, "control", std::move(control), runtime_);
  control_ = host_control_;
}

void World::use_device(at::Device wanted, DeviceGroups groups) {
  device_groups_ = std::move(groups);
  device_ = wanted;
  if (wanted.is_cpu()) {
    if (imitation_) device_groups_ = imitation_();
    return;
  }
  const at::DeviceIndex devices = at::accelerator::deviceCount();
  if (devices == 0)
    throw Error(Diagnostic{"no-device"}
                    .says("no {} device on host {}", c10::DeviceTypeName(wanted.type(), true), host_name())
                    .hint("use device: cpu, or a build and a host with one"));
  if (!wanted.has_index()) device_ = {wanted.type(), static_cast<at::DeviceIndex>(local_rank() % devices)};
  at::accelerator::setDeviceIndex(device_.index());  // this thread's default device
}

void World::check_members(const std::vector<int>& ranks, const std::string& name) const {
  const std::set<int> distinct(ranks.begin(), ranks.end());
  AUTOMODEL_CHECK(distinct.size() == ranks.size(), fmt::format("group '{}' names a rank twice", name));
  AUTOMODEL_CHECK(!ranks.empty() && *distinct.begin() >= 0 && *distinct.rbegin() < size(),
                  fmt::format("group '{}' names a rank outside the world of {}", name, size()));
  AUTOMODEL_CHECK(distinct.contains(rank()), fmt::format("rank {} makes group '{}' without being in it", rank(), name));
}

void World::meet(const std::vector<int>& ranks, const std::string& name) {
  // Checks that all members have arrived and mean the same group, before anything blocking is called.
  TextHash hash;
  hash.mix(name);
  const int tag = static_cast<int>(hash.value() % static_cast<std::uint64_t>(host_control_->max_tag()));
  for (const int member : ranks) hash.mix(fmt::format("{}", member));
  const auto mine = static_cast<std::int64_t>(hash.value());
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  for (const int member : ranks) {
    if (member == rank()) continue;
    sends.push_back({int64_tensor(1, mine), member, tag});
    receives.push_back({int64_tensor(1, 0), member, tag});
  }
  host_control_->exchange_as("group creation", name, sends, receives)->wait();
  for (const Transfer& received : receives)
    AUTOMODEL_CHECK(*received.tensor.const_data_ptr<std::int64_t>() == mine,
                    fmt::format("ranks {} and {} make group '{}' of different ranks", rank(), received.peer, name));
}

std::shared_ptr<Communicator> World::group(const std::vector<int>& ranks, const std::string& name, Traffic traffic) {
  check_members(ranks, name);
  if (ranks.size() == 1) return std::make_shared<SoloCommunicator>(rank(), name);
  meet(ranks, name);
  const auto place = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
  auto host = std::make_shared<HostCommunicator>(ranks, place, name, connect(ranks, name), runtime_);
  std::shared_ptr<Communicator> out = host;
  if (device_groups_ && traffic.any()) out = device_groups_(*this, std::move(host), traffic);
  out->limit_to(traffic);
  return out;
}

std::string World::broadcast_text(const std::string& text, int root) {
  if (size() == 1) return text;
  at::Tensor length = int64_tensor(1, static_cast<std::int64_t>(text.size()));
  control().broadcast(length, root)->wait();
  at::Tensor bytes = rank() == root ? tensor_of(text) : bytes_tensor(*length.const_data_ptr<std::int64_t>());
  control().broadcast(bytes, root)->wait();
  return text_of(bytes);
}

std::vector<std::string> World::gather_text(const std::string& text) {
  if (size() == 1) return {text};
  const at::Tensor lengths = int64_tensor(size(), 0);
  control().all_gather(lengths, int64_tensor(1, static_cast<std::int64_t>(text.size())))->wait();
  if (rank() != 0) {
    control().exchange({{tensor_of(text), 0, 0}}, {})->wait();
    return {};
  }
  std::vector<Transfer> receives;
  for (int r = 1; r < size(); ++r) receives.push_back({bytes_tensor(lengths.const_data_ptr<std::int64_t>()[r]), r, 0});
  control().exchange({}, receives)->wait();
  std::vector<std::string> texts{text};
  for (const Transfer& received : receives) texts.push_back(text_of(received.tensor));
  return texts;
}

void World::finish() {
  engine().wait_for_all();
  control().barrier()->wait();
}

std::string World::last_words(const std::string& text, int culprit) {
  const std::string whole = without_end(text);
  const std::string cause = fmt::format("rank {}: {}\n", culprit, whole.substr(0, whole.find('\n')));
  return whole.find('\n') == std::string::npos ? cause : whole + "\n" + cause;
}

void run_guarded(World& world, const std::function<void(World&)>& body) {
  try {
    body(world);
    world.finish();
  } catch (...) {
    const auto last = ending();
    world.abort(last.code, last.text, last.rank.value_or(world.rank()));
  }
}

}  // namespace automodel::comm
