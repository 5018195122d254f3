// The links a group of ranks communicates over, and how long collectives take on them.
#pragma once

#include "estimate/hardware.h"

namespace automodel::estimate {

/// The class of a group's links, and one rank's share of their bandwidth in one direction.
struct GroupLink {
  LinkClass kind = LinkClass::kNone;
  Link link = {};
};
/// Link of a group of `size` ranks that are `stride` apart, for collectives. If the group spans machines, collectives
/// run as many rings, so that all ranks of a machine share its network adapters.
GroupLink group_link(const Hardware& hardware, int stride, int size);
/// The same for messages to the next rank, which use a single adapter.
GroupLink neighbour_link(const Hardware& hardware, int stride, int size);
/// The same for all-to-all: a rank sends to ranks of its machine over the machine's links and, at the same time, to all
/// others through one adapter. The bandwidth is that of both combined.
GroupLink exchange_link(const Hardware& hardware, int stride, int size);

/// Seconds of a collective over `size` ranks with `bytes` on each, using rings as NCCL and MPI do for large messages.
double all_reduce_seconds(double bytes, int size, const Link& link);
double all_gather_seconds(double bytes, int size, const Link& link);      ///< bytes of the whole
double reduce_scatter_seconds(double bytes, int size, const Link& link);  ///< bytes of the whole
double all_to_all_seconds(double bytes, int size, const Link& link);

}  // namespace automodel::estimate
