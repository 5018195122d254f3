#include "estimate/links.h"

#include <algorithm>

namespace automodel::estimate {
namespace {

double ring_seconds(double bytes, int size, double bandwidth, double latency) {
  return size <= 1 || bytes <= 0 ? 0 : bytes * (size - 1) / size / bandwidth + (size - 1) * latency;
}
double or_else(double rate, double other) {
  return rate > 0 ? rate : other;
}
/// Number of ranks per machine in a group whose ranks are `stride` apart.
int together(const Hardware& hardware, int stride) {
  return std::max(1, hardware.per_node / std::max(1, stride));
}

}  // namespace

double all_gather_seconds(double bytes, int size, const Link& link) {
  return ring_seconds(bytes, size, or_else(link.gather, link.bandwidth), link.latency);
}

double reduce_scatter_seconds(double bytes, int size, const Link& link) {
  return ring_seconds(bytes, size, or_else(link.scatter, link.bandwidth), link.latency);
}

double all_reduce_seconds(double bytes, int size, const Link& link) {
  return 2 * ring_seconds(bytes, size, or_else(link.sum, link.bandwidth), link.latency);
}

double all_to_all_seconds(double bytes, int size, const Link& link) {
  return ring_seconds(bytes, size, link.bandwidth, link.latency);
}

GroupLink group_link(const Hardware& hardware, int stride, int size) {
  auto out = neighbour_link(hardware, stride, size);
  if (out.kind == LinkClass::kNetwork)
    out.link.bandwidth = std::min(hardware.node.bandwidth, out.link.bandwidth * together(hardware, stride));
  return out;
}

GroupLink neighbour_link(const Hardware& hardware, int stride, int size) {
  if (size <= 1) return {};
  if (static_cast<std::int64_t>(stride) * size <= std::max(1, hardware.per_node))
    return {LinkClass::kNode, hardware.node};
  return {LinkClass::kNetwork, hardware.network};
}

GroupLink exchange_link(const Hardware& hardware, int stride, int size) {
  auto out = neighbour_link(hardware, stride, size);
  if (out.kind != LinkClass::kNetwork) return out;
  const double near = together(hardware, stride) - 1, all = size - 1, far = all - near;
  out.link.bandwidth = all / std::max(near / hardware.node.bandwidth, far / hardware.network.bandwidth);
  return out;
}

}  // namespace automodel::estimate
