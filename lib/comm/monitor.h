// Answers other ranks' questions about this rank, and asks them, out of band: over TCP, from its own thread, so that it
// works while the rank computes, is stuck in the transport, or has lost its peers.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/activity.h"
#include "comm/hang.h"
#include "comm/socket.h"

namespace automodel::comm {

/// How other ranks reach a rank's monitor. `host_id` is equal exactly for ranks that can reach each other through
/// 127.0.0.1.
struct MonitorAddress {
  std::string host = {};  ///< for messages
  std::string host_id = {};
  Endpoint endpoint = {};
};
/// Conversion to and from a single line of text.
std::string to_wire(const MonitorAddress& address);
MonitorAddress monitor_address_from_wire(const std::string& line);

/// Identifies ranks that can reach each other through 127.0.0.1: machine, boot and network namespace.
std::string host_id();

/// One per process. Listens from construction, answers once it knows its peers and the job's secret.
class Monitor : public Prober {
 public:
  /// `one_host`: all ranks are on this host, so it suffices to listen on 127.0.0.1. Otherwise it listens on all
  /// interfaces and advertises the addresses of those that MPI uses (OMPI_MCA_btl_tcp_if_include or
  /// OMPI_MCA_oob_tcp_if_include, if set).
  Monitor(int rank, bool one_host);
  ~Monitor() override;

  const MonitorAddress& address() const { return address_; }
  /// `peers` is indexed by rank; `secret` is the same on all ranks and unknown to anyone else. Requests without it are
  /// not answered.
  void begin(std::vector<MonitorAddress> peers, std::string secret, const Activity& activity);

  Answer ask(int rank) override;
  /// True on the first rank of the job that calls it, which then reports why the job ends. Rank 0 arbitrates, or the
  /// first of the next few ranks that answers; true if none does.
  bool claim_last_words();
  /// Asks the other ranks to stop writing to standard error: MPI prints messages in each of them while the launcher
  /// kills them one by one, after the final message. Takes at most about a second.
  void silence_others() const;

 private:
  void serve();
  std::string reply_to(const std::string& request);
  /// The reply to a request, or "" if there was none; `contact` tells how far the request got. Takes at most about
  /// twice `limit`.
  std::string question(int rank, std::string_view verb, Contact& contact, std::chrono::milliseconds limit) const;

  int rank_;
  MonitorAddress address_;
  Listener listener_;
  std::vector<MonitorAddress> peers_;
  std::string secret_;
  const Activity* activity_ = nullptr;
  std::atomic<bool> claimed_ = false;  ///< on the arbitrating rank: whether some rank reports already
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace automodel::comm
