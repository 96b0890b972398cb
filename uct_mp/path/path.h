// Paths to one peer: which of our rails reaches which of theirs, over which routes.
//
// A path is (local rail, remote rail, source path bits, destination path bits): one route through the fabric. Both
// sides hold the same list in the same order; the server of a handshake (connect/) makes it, with both sides' rails at
// hand.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "uct_mp/path/kind.h"
#include "uct_mp/verbs/device.h"

namespace ucx_mp::path {

// A handshake message fits in one packet; schedule::kMaxPaths is larger.
inline constexpr unsigned kMaxPathsPerPeer = 32;

// A port of the other side, as its handshake tells.
struct RemoteRail {
    std::uint16_t lid = 0; // base; 0: RoCE, or not active: no path leads there
    std::uint8_t lmc = 0;
    std::uint8_t device = 0; // index in the peer's DeviceSet: says which of its keys this rail needs
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint64_t subnet_prefix = 0; // RoCE: verbs::network_of()
    double rate = 1;                 // bytes/ns
    std::uint32_t dct_number = 0;    // mp_dc: its target on this rail; 0: none
    std::uint32_t control_qpn = 0;   // its control queue pair on this rail
    std::uint8_t life = 0;           // life of its device: says which of its keys are valid (verbs::MemoryKeys::lives)
    std::uint32_t probe_key = 0;     // of its device, for reading what connect::Connection::probe_address says; 0: none
    verbs::Gid gid{};                // RoCE: its address, `lid` is 0; unset: InfiniBand, or not active

    [[nodiscard]] bool usable() const { return lid != 0 || verbs::is_set(gid); }
};
using TargetNumbers = std::vector<std::vector<std::uint32_t>>; // of our DC targets, per rail

// Whether two rails reach each other: both are active, of the same kind (InfiniBand, RoCE over IPv4,
// over IPv6) and in the same subnet. RoCE may be routed between networks: `routed` asks only for the
// same kind. Rails of two hosts are taken to be routed to each other if these have no network in common.
[[nodiscard]] bool reach(const RemoteRail& a, const RemoteRail& b, bool routed);
[[nodiscard]] bool must_route(std::span<const RemoteRail> client, std::span<const RemoteRail> server);

struct PathSpec {
    std::uint8_t client_rail = 0, server_rail = 0; // indices in each side's rail list
    std::uint8_t client_bits = 0, server_bits = 0; // path bits added to each side's base LID
    bool writes : 1 = true, reads : 1 = true;      // carries these while there is a choice; messages are writes
    Kind kind = Kind::rc;
    bool on_demand = false; // RC: absent until one of the sides wants it (recover/demand.h)
};

struct PathConfig {
    // Routes per pair of rails. 0: min(2^LMC of both ends, 4) - the dissertation's ch. 7 found 4 best. More than 2^LMC:
    // several queue pairs on one route (ch. 6: several send engines per port).
    unsigned num_paths = 0;
    // Path bits to use, in this order; empty: 0, 1, 2, ... Values beyond a rail's LMC are refused at open.
    std::vector<std::uint8_t> path_bits;
    bool cross_rails = false; // every pair of rails of one subnet, not only one partner per rail
    bool split_reads = false; // two paths on every route, one for writes and one for reads
    // For a channel that may have paths of both kinds: its first `rc_paths` paths are RC (of
    // each half with split_reads), the rest is DC. 0: every route twice, once for each kind.
    unsigned rc_paths = 0;
    // For such a channel, if both sides know it: all its paths are DC. Places for RC over the same routes
    // are taken and left as RC is wanted: `rc_paths` of them (of each half), 0: one for each route.
    bool rc_on_demand = false;
};

// One line naming UCX_MP_PATH_BITS or UCX_MP_NUM_PATHS, value and what is allowed; empty: fine.
[[nodiscard]] std::string check(const PathConfig& config, std::span<const verbs::Rail> rails);

// The server's choice. Rails reach each other if they are in one subnet. Without cross_rails every rail of the
// side that has more rails in a subnet gets one partner (the i-th, counted round robin), so that no rail is
// left out. Rails without a partner in their subnet are unused. Paths of different rails alternate, so that the
// first two paths are two rails. At most `max_paths` (and kMaxPathsPerPeer), cut so that all pairs of rails
// lose alike; empty: unreachable. `client_wants` is the client's num_paths (0: auto); the smaller wish of the
// two wins if both have one. Explicit path bits are the server's; without a wish as many routes per pair as it
// has named, cut to the client's LMC. `split_reads`, if either side wants it: the second half of the list are
// the first half's routes again, for reads. `kinds`: those that both sides have; none: unreachable.
[[nodiscard]] std::vector<PathSpec> plan_paths(std::span<const RemoteRail> client, std::span<const RemoteRail> server,
                                               const PathConfig& server_config, unsigned client_wants,
                                               unsigned max_paths = kMaxPathsPerPeer, bool client_splits = false,
                                               Kinds kinds = Kinds::rc);
// Whether the list says so: its halves are for writes and for reads.
[[nodiscard]] bool is_split(std::span<const PathSpec> paths);
void mark_split(std::span<PathSpec> paths);

// Places for ports that are down on either side and may come up, behind the paths that plan_paths has
// returned for the same arguments. LID, LMC and subnet of such a port are not known yet. So it gets a partner
// in each subnet of the other side. It also gets one among the ports that are down there: its own place in
// the list if possible, all with cross_rails. It gets as many routes as the largest LMC of its side allows.
// The port shows when it is up which of them can be used, and with which path bits: recover/joining.h. With
// split_reads each half of the list has its own places. Returns their number (then: of each half).
std::uint8_t add_absent_paths(std::vector<PathSpec>& paths, std::span<const RemoteRail> client,
                              std::span<const RemoteRail> server, const PathConfig& server_config,
                              unsigned client_wants, unsigned max_paths = kMaxPathsPerPeer, Kinds kinds = Kinds::rc);

// Places for paths of RC over the routes of those of DC, behind all others; see PathConfig::rc_on_demand. Returns their
// number (with split_reads: of each half).
std::uint8_t add_on_demand(std::vector<PathSpec>& paths, const PathConfig& server_config,
                           unsigned max_paths = kMaxPathsPerPeer);
// How many places are left for the other paths.
[[nodiscard]] unsigned room_beside_on_demand(const PathConfig& server_config, unsigned max_paths);

// A port whose partner was down has taken another port's partner (plan_paths). When its own partner has come up, the
// two share that port, and two paths get the rate of one. So the first is spare: among the paths in `up` (bit i:
// paths[i] carries traffic), those between two ports that have a path to another port each. To be asked anew when `up`
// changes, and not with cross_rails, where ports are shared by intent. Paths of both kinds are told apart only by their
// route.
[[nodiscard]] std::uint64_t spare_paths(std::span<const PathSpec> paths, std::uint64_t up);

// The route that a queue pair of this path may migrate to (APM): between the same two adapters, in the
// subnet, with ports of as large an MTU. It is as disjoint as can be told from here: another port on
// both sides, on one side, other path bits. Both sides find the same. None: there is only one route.
[[nodiscard]] std::optional<PathSpec> alternate_of(const PathSpec& path, std::span<const RemoteRail> client,
                                                   std::span<const RemoteRail> server);

// Paths that carry a message to a peer with the same ports, those that are down included. 0: not known.
[[nodiscard]] unsigned paths_between_alike(PathConfig config, std::span<const verbs::Rail> rails);

// How a local rail looks to the other side; dct_number and control_qpn are for the caller to fill in.
[[nodiscard]] RemoteRail describe(const verbs::Rail& rail);

} // namespace ucx_mp::path
